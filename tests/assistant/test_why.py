"""Why this line and why here: two chains of quoted lines, and a graph that only quotes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from rerail.assistant.why import to_dot, to_svg, why, write_graph
from rerail.domain.diagnosis import Diagnosis
from rerail.errors import UsageError

TASK = (
    "4175: [rank4175]: Traceback (most recent call last):\n"
    '4175: [rank4175]:   File "/w/train.py", line 7, in main\n'
    "4175: [rank4175]: OSError: [Errno 28] No space left: '<b>x</b>'\n"
    "171: [rank171]: RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.4]:41772\n"
    "srun: error: nvl-T14: tasks 4172-4175: Exited with exit code 1\n"
)


@pytest.fixture
def found(diagnose: Callable[[str], Diagnosis]) -> Diagnosis:
    return diagnose(TASK)


def test_the_chain_of_the_place_quotes_the_line_that_tells_it(found: Diagnosis) -> None:
    assert found.first_fault is not None
    assert (found.first_fault.rank, found.first_fault.node) == (4175, "nvl-T14")
    text = "\n".join(why(found))
    assert "rank 4175: the label in front of the line" in text
    assert "node nvl-T14: rank 4175 runs there" in text
    assert "srun: error: nvl-T14: tasks 4172-4175" in text
    cited = {item.id for item in found.evidence}
    assert {reason.evidence for reason in found.place} <= cited


def test_what_the_fault_did_to_others_is_an_edge(found: Diagnosis) -> None:
    first = next(item.id for item in found.evidence if item.role == "initiating")
    lost = next(item.id for item in found.evidence if item.role == "cascade")
    assert (first, lost) in {(edge.cause, edge.effect) for edge in found.relations}


def test_a_graph_holds_text_and_no_markup_of_the_log(found: Diagnosis, tmp_path: Path) -> None:
    page = ElementTree.fromstring(to_svg(found))
    assert "<b>x</b>" in "".join(page.itertext())
    assert not [node for node in page.iter() if node.tag.endswith("}b")]
    assert json.loads(to_dot(found).split("[label=")[1].split(", penwidth")[0])
    write_graph(found, tmp_path / "a.svg")
    with pytest.raises(UsageError, match="neither"):
        write_graph(found, tmp_path / "a.png")


def test_nothing_is_explained_where_nothing_failed(diagnose: Callable[[str], Diagnosis]) -> None:
    healthy = diagnose("step 1 loss 2.0\nstep 2 loss 1.9\nTraining completed.\n")
    assert "nothing to explain" in why(healthy)[0]

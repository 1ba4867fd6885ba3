"""The retrieval table on recorded runs: the right answers are counted, unseen causes apart."""

import json
from pathlib import Path

import pytest

from rerail.evals.retrieval.command import retrieval_command, score
from rerail.evals.retrieval.sets import build_sets
from rerail.knowledge_base.retrieval.search import Retriever

DATA = Path(__file__).parents[2] / "data"


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    path = tmp_path_factory.mktemp("cases") / "cases.jsonl"
    logs = {
        "cuda_oom": ["torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", "RuntimeError: CUDA out of memory. Tried to allocate 512.00 MiB (GPU 3; 39 GiB total capacity)"],
        "disk_full_or_quota": ["OSError: [Errno 28] No space left on device"],
    }  # fmt: skip
    rows = [
        {
            "id": f"{leaf}{i}",
            "log": f"step 1 loss 2.0\n{log}\n",
            "label": leaf,
            "root_line": 1,
            "action": "none",
        }
        for leaf, texts in logs.items()
        for i, log in enumerate(texts)
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def test_sets_and_their_answers(cases):
    sets = {one.name: one for one in build_sets(cases, None)}
    assert {q.leaf for q in sets["other job"].questions} == {"cuda_oom"}
    assert [q.leaf for q in sets["unseen"].questions] == ["disk_full_or_quota"]
    found = score(
        sets["other job"], Retriever(sets["other job"].documents), "lexical", boosts=False
    )
    assert (found.questions, found.first, found.mrr) == (2, 2, 1.0)
    nothing = score(sets["unseen"], Retriever(sets["unseen"].documents), "lexical", boosts=False)
    assert (nothing.first, nothing.said_seen) == (0, 0)


@pytest.mark.filterwarnings("default")
def test_the_command_prints_every_way_it_has(cases, capsys):
    assert retrieval_command(cases, None, boosts=False, json_output=True) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {"lexical"} <= {row["how"] for row in rows}
    rewritten = next(r for r in rows if (r["set"], r["how"]) == ("rewritten", "lexical"))
    assert rewritten["first"] == rewritten["questions"] > 10

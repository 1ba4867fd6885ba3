"""Names that a site does not send: hidden from the endpoint, and real again in what is shown."""

import json
from pathlib import Path

import pytest

from rerail.assistant.agent import names as names_module
from rerail.assistant.agent.explain import explain
from rerail.assistant.agent.names import Names
from rerail.assistant.agent.propose import proposed_patterns
from rerail.domain.incident import SnapshotLine
from rerail.errors import ConfigError
from rerail.evals.fake_model import behaviours as play
from rerail.evals.fake_model.server import FakeModelServer, Reply

JOB = {
    "slurm-7.out": "srun: job 7 user=maria77 on ice-041\n"
    + "".join(f"[rank{r}]: step {s} loss 3.{s}\n" for s in range(1, 30) for r in (0, 1))
    + '[rank1]: Traceback (most recent call last):\n[rank1]:   File "/home/maria77/secret-project/train.py", line 9, in <module>\n'
    "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. on ice-041 /scratch/maria77/x.pt\n"
    "[rank0]: RuntimeError: Connection closed by peer [10.20.30.40]:4711\n",
}
SECRET = ("maria77", "ice-041", "secret-project", "10.20.30.40")


def test_hiding_is_reversible_stable_and_leaves_what_explains():
    names = Names(["ice-041", "ice-04"])
    text = (
        "ice-041.prod.example ice-04 10.1.2.3:80 user=maria File "
        '"/home/maria/venv/lib/python3.11/site-packages/torch/nn/x.py", line 3 and /data/run/train.py rank 3 HOST_1 b@c.org'
    )
    hidden = names.hide(text)
    assert names.restore(hidden) == text and names.hide(text) == hidden
    assert not any(word in hidden for word in ("maria", "ice-04", "10.1.2.3", "/data", "b@c"))
    assert "/site-packages/torch/nn/x.py" in hidden and "/train.py rank 3" in hidden
    # A stand-in that a log prints itself is not taken for one of ours.
    assert names.restore(names.hide("HOST_1")) == "HOST_1"
    assert Names(pattern="zebra-[a-z]+").hide("zebra-one died on n12-a3") == "HOST_1 died on HOST_2"
    with pytest.raises(ConfigError):
        Names(pattern="(")
    assert (
        Names().hide("step 3/40 at 12:00:01 loss 2.5 and/or x")
        == "step 3/40 at 12:00:01 loss 2.5 and/or x"
    )


@pytest.mark.parametrize("form", ["text", "tool"])
def test_no_name_reaches_the_endpoint_and_the_answer_has_the_real_ones(
    facts_from, settings_for, form
):
    facts = facts_from(JOB)

    def behaviour(body):
        sent = play.all_text(body)
        if "grep" not in play.called(body):
            found = next(w for w in sent.split() if w.startswith("HOST_"))
            return Reply(tools=[("grep", {"text": found.strip(".,:")})])
        host = next(w for w in sent.split() if w.startswith("HOST_")).strip(".,:")
        at = next(
            r.split()[0] for r in sent.splitlines() if "OutOfMemory" in r and r.startswith("L")
        )
        said = play.answer(
            failure_type="cuda_oom", first_fault=at,
            claims=[{"text": f"It ran out of memory on {host}.", "lines": [at]}],
        )  # fmt: skip
        return Reply(tools=[("Answer", json.loads(said.text))]) if form == "tool" else said

    with FakeModelServer(behaviour) as server:
        said = explain(facts, settings_for(server.url, model_hide_names=True, model_answer=form))
        sent = json.dumps(server.requests)
    assert not [word for word in SECRET if word in sent]
    assert said.claims[0].text == "It ran out of memory on ice-041."
    assert said.claims[0].problem == "says more than the cited lines"
    # The tool was called with the real name: it found the lines.
    assert "2 lines" in sent


def test_one_line_is_hidden_for_a_proposal_too(settings_for):
    line = SnapshotLine(
        file="a.log",
        number=1,
        text="lease of /home/maria77/shard-3 lost by ice-041",
        node="ice-041",
    )
    with FakeModelServer(lambda _: Reply('{"pattern": "lease of .{0,80}lost by"}')) as server:
        patterns, banner = proposed_patterns(
            [line], settings_for(server.url, model_hide_names=True)
        )
        assert not [word for word in SECRET if word in json.dumps(server.requests)]
    assert len(patterns) == 3 and not banner


PLACED = (
    "srun: error: dgx-a12: task 3: Killed\n"
    "slurmstepd: error: *** JOB 71 ON dgx-a13 CANCELLED AT 2026-01-01T00:00:00 ***\n"
    "hostname: vega\nsession opened for user alice.smith by root\n"
    "vega is slow, alice.smith was told; worker on DGX-A12 lost\n"
    + "".join(f"dgx-a12 pinged dgx-a13 in {n} ms\n" for n in range(30))
)


@pytest.mark.parametrize("name", ["dgx-a12", "dgx-a13", "vega", "alice.smith", "dgx-a<num>"])
def test_a_name_that_stands_in_a_telling_place_is_hidden_everywhere(facts_from, settings_for, name):
    facts = facts_from({"slurm-7.out": PLACED + JOB["slurm-7.out"]})
    with FakeModelServer(lambda _: play.answer(failure_type="cuda_oom")) as server:
        explain(facts, settings_for(server.url, model_hide_names=True))
        sent = json.dumps(server.requests)
    assert "pinged" in sent and name.lower() not in sent.lower()


def test_every_place_of_a_name_finds_its_example():
    from rerail.assistant.agent.names import _places, placed_names
    from rerail.cached_yaml import load_cached

    content = load_cached(Path(names_module.__file__).with_name("name_places.yaml"))
    for one, (_, pattern) in zip(content["places"], _places()[0], strict=True):
        line, name = one["example"]
        assert pattern.search(line)["name"] == name, line
        assert (one["kind"], name) in set(placed_names([line]))

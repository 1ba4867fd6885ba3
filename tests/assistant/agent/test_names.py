"""Names that a site does not send: hidden from the endpoint, and real again in what is shown."""

import json

import pytest

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
    assert said.claims[0].text == "It ran out of memory on ice-041." and not said.claims[0].problem
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

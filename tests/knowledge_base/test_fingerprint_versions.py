"""A version of the fingerprint is never edited: what each one returns is held by a snapshot."""

import json
from pathlib import Path

import pytest

from rerail.domain.diagnosis import Diagnosis
from rerail.knowledge_base.fingerprint import CURRENT, VERSIONS, fingerprint

SNAPSHOT = Path(__file__).parents[1] / "data" / "fingerprints.json"
LINES = {
    "oom": "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
    "xid": "NVRM: Xid (PCI:0000:8d:00): 79, pid=4711, name=python, GPU has fallen off the bus.",
    "path": "OSError: [Errno 28] No space left on device: '/ckpt/step_30.pt'",
    "plain": "RuntimeError: shape mismatch in layer 3",
}


def diagnosis(text, *, leaf="cuda_oom", rule=None, nodes=(), gpus=()):
    return Diagnosis.model_validate(
        {
            "outcome": "failure", "status": "established", "failure_type": leaf, "category": "x",
            "layer": "script", "summary": "s", "recovery": {"action": "none"},
            "first_fault": {"file": "a.log", "line": 7, "text": text, "rule": rule},
            "suspects": {"nodes": list(nodes), "gpus": list(gpus)},
        }
    )  # fmt: skip


INPUTS = {
    **{name: diagnosis(text) for name, text in LINES.items()},
    **{f"{name} by rule": diagnosis(text, rule="r1") for name, text in LINES.items()},
    "on a node": diagnosis(LINES["xid"], nodes=["gpu-7"], gpus=[{"node": "gpu-7", "gpu": 3}]),
    "no leaf": diagnosis(LINES["plain"], leaf=None),
}


@pytest.mark.parametrize("version", VERSIONS)
def test_each_version_returns_what_it_always_did(version):
    held = json.loads(SNAPSHOT.read_text(encoding="utf-8"))
    found = {name: fingerprint(one, version).model_dump() for name, one in INPUTS.items()}
    assert found == held[version], "write a further version; this one made what is stored"


def test_no_version_is_lost_and_the_newest_is_in_force():
    held = json.loads(SNAPSHOT.read_text(encoding="utf-8"))
    assert set(held) == set(VERSIONS) and list(VERSIONS)[-1] == CURRENT
    assert fingerprint(INPUTS["oom"]) == fingerprint(INPUTS["oom"], CURRENT)

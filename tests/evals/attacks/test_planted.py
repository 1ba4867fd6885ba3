"""No planted secret of any kind, in any label form, comes out anywhere: the property of the redactor."""

import io
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import rerail.log_parsers.redactor as redactor_module
from rerail.cached_yaml import load_cached
from rerail.evals.attacks.attacks import Attack
from rerail.evals.attacks.bases import BASES
from rerail.evals.attacks.planted import LABELS, leaked, planted
from rerail.evals.attacks.run import run_trial
from rerail.log_parsers.redaction import KINDS_FILE, redact, without_cuts
from rerail.log_parsers.redactor import Redactor
from rerail.log_parsers.sources import iter_chunks
from rerail.log_parsers.text import clean

STEPS = "".join(f"[rank{s % 4}]: step {s} loss {9 / (s + 1):.4f}\n" for s in range(9))


def shown(masked: bytes) -> str:
    return "\n".join(clean(line) for line in masked.split(b"\n"))


@pytest.mark.parametrize("one", planted(), ids=lambda one: one.kind)
@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "plain"])
def test_every_kind_is_masked_behind_every_label(one, compiled, monkeypatch):
    if not compiled:
        monkeypatch.setattr(redactor_module, "_scanner_for", lambda large: None)
    for label in LABELS:
        text = shown(Redactor().feed((STEPS + one.printed(label) + STEPS).encode()))
        assert not one.out_in(text), label
        assert text.count("\n") == 2 * STEPS.count("\n") + len(one.lines)
        assert text.count("step 8 loss 1.0000") == 2


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    picks=st.lists(st.sampled_from(range(len(planted()))), min_size=1, max_size=4, unique=True),
    labels=st.lists(st.sampled_from(LABELS), min_size=4, max_size=4),
    size=st.integers(1, 400),
    seed=st.integers(0, 1 << 16),
)
def test_chunks_and_interleaved_ranks_hide_nothing_from_it(picks, labels, size, seed):
    """Lines of several ranks mix, and the stream is read in pieces of any size."""
    ones = [planted()[at] for at in picks]
    queues = [
        one.printed(label).splitlines(keepends=True)
        for one, label in zip(ones, labels, strict=False)
    ]
    queues.append(STEPS.splitlines(keepends=True))
    chance = random.Random(seed)
    printed = ""
    while waiting := [queue for queue in queues if queue]:
        printed += chance.choice(waiting).pop(0)
    redactor = Redactor()
    text = shown(
        b"".join(redactor.feed(p) for p in iter_chunks(io.BytesIO(printed.encode()), size))
    )
    short = {"q9A7wZ=="}  # eight letters of the end of a key are not told from other words
    for one in ones:
        assert not [s for s in one.secrets if s in text and s not in short], (one.kind, text)
    assert text.count("\n") == printed.count("\n")


def test_a_whole_key_on_one_line_does_not_end_the_key_of_another_rank():
    body = "Zk3Lp9QwErTyUiOpAsDfGhJkLzXcVbNmQwErTyUiOpAsDfGhJkLzXcVbNm12345x"
    whole = f'"private_key": "-----BEGIN PRIVATE KEY-----\\n{body}\\n-----END PRIVATE KEY-----\\n"'
    text = (
        f"[rank1]: -----BEGIN RSA PRIVATE KEY-----\n[rank1]: {body[::-1]}\n[rank2]: {whole}\n"
        f"[rank1]: {body[5:]}abcde\n[rank1]: -----END RSA PRIVATE KEY-----\n[rank1]: step 8 loss 1.0\n"
    )
    masked = Redactor().feed(text.encode()).decode()
    assert body[:20] not in masked and body[5:40] not in masked and body[::-1][:20] not in masked
    assert masked.endswith("[rank1]: step 8 loss 1.0\n")


def test_a_line_that_is_cut_by_force_cuts_no_secret():
    one = planted()[0]
    filler = b"x=1 " * ((8 << 20) // 4 - 40)
    for shift in range(0, 64, 7):
        data = filler + b"y" * shift + b" " + one.lines[0].encode() + b" " + b"z=2 " * 60_000
        redactor = Redactor()
        text = b"".join(redactor.feed(piece) for piece in iter_chunks(io.BytesIO(data)))
        assert one.secrets[0].encode() not in text


def test_a_key_that_never_ends_masks_no_other_line():
    begun = next(one for one in planted() if one.kind == "private key of many lines")
    log = begun.printed().replace("-----END RSA PRIVATE KEY-----\n", "")
    after = "".join(
        f"[rank1]: step {n} loss 2.5\nKilled\nAborted (core dumped)\n" for n in range(900)
    )
    assert shown(Redactor().feed((log + after).encode())).endswith(after)


def test_long_logs_are_masked_alike_by_the_kinds_of_their_lines(monkeypatch, tmp_path):
    """Where each kind of line is looked at once, nothing more and nothing less is masked."""
    from rerail.log_parsers.piece import Piece

    rows = [one.printed(label) for one in planted() for label in LABELS]
    rows += [f"[rank{n % 8}]: tokens: {n} token={n} key={n:040x} step {n}\n" for n in range(3000)]
    random.Random(1).shuffle(rows)
    whole = Piece("".join(rows).encode())
    by_kinds = Redactor().mask(whole, 1, tally=True).raw
    monkeypatch.setattr(redactor_module, "_scanner_for", lambda large: None)
    assert by_kinds == Redactor().feed(whole.raw)


def test_examples_of_every_kind_are_masked_and_what_must_stay_stays():
    for kind in load_cached(KINDS_FILE)["kinds"]:
        line, secret = without_cuts(kind["hides"])
        assert secret not in redact(line), kind["id"]
        assert kind["source"] and kind["words"]
        for keep in kind.get("keeps", []):
            assert redact(keep) == keep, kind["id"]


@pytest.mark.parametrize("base", BASES[:2], ids=lambda base: base.name)
def test_nothing_planted_comes_out_of_any_face(base):
    """Screen, JSON, digest, store, prompts, tool answers, chat, post-mortem and page."""
    trial = run_trial(Attack("nothing", lambda base: base), base)
    assert trial.leaks == [] and trial.verdict_after[0] == base.leaf


def test_the_search_for_leaks_finds_one():
    assert leaked('{"text": "using ' + planted()[0].secrets[0] + '"}')

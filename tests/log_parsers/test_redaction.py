"""Secrets are masked at ingestion; what only looks like one, and what is evidence, stays."""

from __future__ import annotations

import json

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rerail.log_parsers.redaction import MASK, compiled, redact, secret_kinds
from rerail.log_parsers.redactor import _rows_by_words

SECRETS = [
    ("AKIAQWERTYUIOPASDF12", "aws_access_key_id=AKIAQWERTYUIOPASDF12"),
    ("ASIAQWERTYUIOPASDF12", "assumed role with ASIAQWERTYUIOPASDF12 expired"),
    (
        "wJalrXUtnFEMI/K7MDENG/bPxRfiCYq1w2e3r4t5",
        "AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/bPxRfiCYq1w2e3r4t5",
    ),
    ("hf_" + "aB3" * 11, "HfHubHTTPError: token hf_" + "aB3" * 11 + " is not valid"),
    ("hf_" + "Zq9" * 11, "HUGGING_FACE_HUB_TOKEN=hf_" + "Zq9" * 11),
    ("sk-proj-abcDEF123456ghiJKL", "OPENAI_API_KEY: sk-proj-abcDEF123456ghiJKL"),
    ("ghp_" + "a1B2" * 9, "remote: https://ghp_" + "a1B2" * 9 + "@github.com/org/repo"),
    ("github_pat_" + "11AB_" * 6, "using github_pat_" + "11AB_" * 6),
    ("glpat-abcdefGHIJKL12345678", "PRIVATE-TOKEN: glpat-abcdefGHIJKL12345678"),
    ("nvapi-" + "x1Y2_" * 6, "NGC key nvapi-" + "x1Y2_" * 6),
    ("xoxb-1234567890-abcdefghij", "slack xoxb-1234567890-abcdefghij"),
    ("AIza" + "Sy0-" * 9, "google key AIza" + "Sy0-" * 9),
    (
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abcDEF_-123",
        "jwt eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abcDEF_-123",
    ),
    ("hunter2secret", "redis://trainer:hunter2secret@10.0.0.7:6379/0 refused"),
    ("p4ss:word", "postgresql://mlflow:p4ss:word@db-1/mlflow"),
    ("s3cr3t-Pa55", "MYSQL_PASSWORD=s3cr3t-Pa55"),
    ("s3cr3tPa55", '{"password": "s3cr3tPa55", "user": "me"}'),
    (
        "ab12cd34ef56ab12cd34ef56ab12cd34ef56ab12",
        "wandb api_key: ab12cd34ef56ab12cd34ef56ab12cd34ef56ab12",
    ),
    (
        "ab12cd34ef56ab12cd34ef56",
        "environ({'WANDB_API_KEY': 'ab12cd34ef56ab12cd34ef56', 'HOME': '/root'})",
    ),
    ("Zm9vYmFyYmF6cXV4", "Authorization: Bearer Zm9vYmFyYmF6cXV4"),
    ("dXNlcjpwYXNz", "curl -H 'authorization: Basic dXNlcjpwYXNz' http://x"),
    (
        "0123abcd4567efgh89",
        "GET https://b.s3.amazonaws.com/k?X-Amz-Signature=0123abcd4567efgh89&x=1",
    ),
    ("sv%2Bsigvalue123", "https://acct.blob.core.windows.net/c/f?sp=r&sig=sv%2Bsigvalue123"),
    ("MIIEvQIBADANBg", "-----BEGIN RSA PRIVATE KEY-----MIIEvQIBADANBg"),
    ("c2Vzc2lvbg8899", "Set-Cookie: c2Vzc2lvbg8899"),
    ("k9j8h7g6f5d4", "export SLACK_CLIENT_SECRET='k9j8h7g6f5d4'"),
]


@pytest.mark.parametrize(("secret", "line"), SECRETS, ids=[line[:24] for _, line in SECRETS])
def test_a_secret_is_masked(secret: str, line: str) -> None:
    masked = redact(line)
    assert secret not in masked
    assert MASK in masked


@pytest.mark.parametrize(
    "line",
    [
        "consumed tokens: 26022182912 | elapsed time per iteration (ms): 512.2",
        "tokens/sec: 10342.7, token_count=4096",
        "tokenizer: GPT2BPETokenizer",
        "KeyError: 'model.layers.3.weight'",
        "  max_tokens=4096, pad_token=True",
        "store key: None",
        "node-17:3468:3905 [4] NCCL INFO comm 0x55d5c8a0 rank 4 nranks 16 busId 9b000",
        "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "tcp://10.0.0.4:29500 rendezvous",
        "fatal: unable to access https://github.com/org/repo/: Could not resolve host",
        "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB.",
    ],
)
def test_evidence_is_left_as_it_is(line: str) -> None:
    assert redact(line) == line


def test_the_host_of_a_url_stays() -> None:
    masked = redact("redis://trainer:hunter2secret@10.0.0.7:6379/0 refused")
    assert "redis://trainer:" in masked
    assert "@10.0.0.7:6379/0 refused" in masked


def test_a_dump_of_the_environment_loses_every_secret_and_keeps_the_rest() -> None:
    secrets = {
        "AWS_SECRET_ACCESS_KEY": "abcdEFGH/1234+ijkl5678mnop9012qrst3456uv",
        "WANDB_API_KEY": "0f" * 20,
        "HF_TOKEN": "hf_" + "Qw7" * 12,
        "DB_PASSWORD": "correcthorse",
        "SSH_PASSPHRASE": "battery-staple",
    }
    plain = {"RANK": "3", "MASTER_ADDR": "node-01", "NCCL_DEBUG": "INFO", "HOME": "/home/u"}
    masked = redact(json.dumps(secrets | plain))
    assert not [value for value in secrets.values() if value in masked]
    for value in plain.values():
        assert value in masked


@given(st.text(max_size=200))
def test_masking_twice_changes_nothing_more(text: str) -> None:
    once = redact(text)
    assert redact(once) == once


@given(
    before=st.text("abc =:,;{}[]\"'", max_size=20),
    value=st.text("abcdefghijklmnop0123456789", min_size=12, max_size=40).filter(
        lambda v: not v.isdigit() and any(c.isdigit() for c in v)
    ),
)
def test_an_assigned_secret_is_masked_whatever_stands_before(before: str, value: str) -> None:
    assert value not in redact(f"{before} MY_API_KEY={value}")


@pytest.mark.parametrize("at", [at for at, kind in enumerate(secret_kinds()) if kind.behind])
@given(data=st.data())
def test_what_stands_behind_a_word_proposes_every_line_that_the_pattern_finds(
    at: int, data: st.DataObject
) -> None:
    line = data.draw(st.from_regex(compiled(at)))
    assume(line.isascii() and b"\n" not in line)
    assume(any(word in line.lower() for word in secret_kinds()[at].words))
    assert _rows_by_words(line + b"\n") == {0}

"""A traceback that a logger wrote as one record carries its label once, in front of its first line."""

from __future__ import annotations

from rerail.assistant.pipeline import diagnose_texts

HEAD = (
    "2023-06-16 07:40:33,801: rank{rank}[9{rank}][MainThread]: ERROR: composer.cli: Traceback (most recent call last):\n"
    '  File "/w/stream.py", line 55, in download\n'
    "    s3.download_file(bucket, key)\n"
)
ERROR = 'botocore.exceptions.ConnectTimeoutError: Connect timeout on endpoint URL: "https://s.example.org/index.json"\n'
STEPS = "".join(
    f"2023-06-16 07:40:1{n},002: rank{n % 4}[9{n % 4}][MainThread]: INFO: main: step {n} loss 2.{n}\n"
    for n in range(8)
)


def test_who_logged_it_raised_it() -> None:
    found = diagnose_texts({"train.log": STEPS + HEAD.format(rank=2) + ERROR}).diagnosis
    assert found.suspects.ranks == [2]
    assert "the label in front of its traceback" in [why.because for why in found.place]


def test_a_head_without_a_label_tells_nobody() -> None:
    head = HEAD[HEAD.index("Traceback") :]
    assert diagnose_texts({"train.log": STEPS + head + ERROR}).diagnosis.suspects.ranks == []

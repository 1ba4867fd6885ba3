"""The labelled cases that the project keeps: each modelled on a reported failure, with names of its own."""

from __future__ import annotations

from pathlib import Path

_DATA = Path(__file__).with_name("data")
KEPT = sorted(_DATA.glob("*.jsonl"))

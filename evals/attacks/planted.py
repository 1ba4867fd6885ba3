"""Secrets that are planted into logs: what they are stands in `planted.yaml`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from rerail.cached_yaml import load_cached
from rerail.log_parsers.redaction import KINDS_FILE, without_cuts

LABELS = (
    "",
    "[rank3]: ",
    "3: ",
    "[default3]:[rank11]: ",
    "[1,3]<stdout>:",
    "(RayTrainWorker pid=4711, ip=10.0.0.7) ",
    "2026-03-01 03:00:07,123 [rank3] INFO env: ",
    "2026-03-01T03:00:07.123456Z stdout F ",
    "Mar  1 03:00:07 gpu-0017 job[71]: ",
)
"""What launchers and collectors put in front of a line."""


@dataclass(frozen=True, slots=True)
class Planted:
    """One secret: its kind, the texts that must not come out, and the lines that print it."""

    kind: str
    secrets: tuple[str, ...]
    lines: tuple[str, ...]

    def printed(self, label: str = "") -> str:
        """Return the lines as a job prints them, each with the label."""
        return "".join(f"{label}{line}\n" for line in self.lines)

    def out_in(self, text: str) -> bool:
        """Tell whether the secret, or a telling piece of it, stands in a text."""
        return any(secret in text or secret[4:] in text for secret in self.secrets)


@lru_cache(maxsize=1)
def planted() -> tuple[Planted, ...]:
    """Return the secrets of `planted.yaml`, and an example of every kind that is known."""
    own = load_cached(Path(__file__).with_name("planted.yaml"))["secrets"]
    found = [
        Planted(
            one["kind"],
            tuple(
                without_cuts([one["secret"]] if isinstance(one["secret"], str) else one["secret"])
            ),
            tuple(without_cuts(one["lines"])),
        )
        for one in own
    ]
    for kind in load_cached(KINDS_FILE)["kinds"]:
        line, secret = without_cuts(kind["hides"])
        found.append(Planted(f"example of {kind['id']}", (secret,), (line,)))
    return tuple(found)


def leaked(text: str, ones: Iterable[Planted] | None = None) -> list[str]:
    """Return the kinds of the planted secrets that stand in a text, JSON escapes undone as well."""
    plain = text.replace('\\"', '"').replace("\\\\", "\\").replace("\\n", "\n")
    return [one.kind for one in ones or planted() if one.out_in(text) or one.out_in(plain)]

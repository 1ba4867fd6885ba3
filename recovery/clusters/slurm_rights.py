"""Which right an action needs on Slurm (`slurm_rights.yaml`), and what to say where it is missing."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from rerail.domain.plan import ActionKind
from rerail.errors import ClusterError
from rerail.tools.clusters.scheduler_answers import FORBIDDEN, meaning

FILE = Path(__file__).with_suffix(".yaml")


@lru_cache(maxsize=1)
def _rights() -> dict[str, dict[str, str]]:
    import yaml

    found: dict[str, dict[str, str]] = yaml.safe_load(FILE.read_text(encoding="utf-8"))["rights"]
    return found


def level_for(kind: ActionKind) -> str:
    """Return the level that an action needs: `admin`, `operator`, ..., or an empty string."""
    return str(_rights().get(str(kind), {}).get("level", ""))


def explained(error: ClusterError, kind: ActionKind) -> ClusterError:
    """Return the error with the right that is missing, where a missing right is what it says."""
    level = level_for(kind)
    if meaning(error.message) != FORBIDDEN or not level:
        return error
    if "sudo:" in error.message or "is not allowed to execute" in error.message:
        right = "an entry in sudoers for this command"
    else:
        right = f"Slurm's adminlevel={level} for the writer's account (sacctmgr), needed to {kind}"
    return ClusterError(
        f"{error.message}; missing right: {right}",
        subject=error.subject,
        hint="rerail doctor; docs/setup_slurm.md",
        recoverable=False,
    )

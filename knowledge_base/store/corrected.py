"""What a person's correction means for the machines that an incident was held against."""

from __future__ import annotations

from rerail.knowledge_base.taxonomy import leaves


def clears_machines(confirmed: str | None, true_type: str | None) -> bool:
    """Tell whether a person said that the verdict was wrong, and the cause none of the machines'."""
    leaf = leaves().get(true_type or "")
    return confirmed == "wrong" and (leaf is None or leaf.layer != "infrastructure")

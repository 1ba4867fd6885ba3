"""Words for verdicts: ranks, collectives and groups as an on-call engineer reads them."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from rerail.log_parsers.flight_recorder.model import Entry, ProcessGroup

_MOST = 8


def ranks(numbers: Iterable[int]) -> str:
    """Say `rank 3`, `ranks 9 and 14` or `ranks 0-8, 10-13 and 15`."""
    ordered = sorted(set(numbers))
    if len(ordered) == 1:
        return f"rank {ordered[0]}"
    runs: list[list[int]] = []
    for number in ordered:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    parts = []
    for low, high in runs:
        parts += [str(n) for n in range(low, high + 1)] if high - low < 2 else [f"{low}-{high}"]
    if len(parts) > _MOST:
        parts = [*parts[:_MOST], f"others ({len(ordered)} in all)"]
    return f"ranks {', '.join(parts[:-1])} and {parts[-1]}" if parts[1:] else f"ranks {parts[0]}"


def verb(numbers: Collection[int], one: str, many: str) -> str:
    """Choose the verb form for one rank or several."""
    return one if len(numbers) == 1 else many


def label(entry: Entry, channel: tuple[int, int] | None = None) -> str:
    """Name an operation with its number: `all_reduce 7`, `send 6->14 (point-to-point 3)`.

    `channel` is the global (source, destination); the recorded name counts within the group.
    """
    if not entry.is_p2p:
        return f"{entry.op} {entry.seq}"
    name = f"{entry.op} {channel[0]}->{channel[1]}" if channel else entry.op
    return f"{name} (point-to-point {entry.p2p_seq})"


def call(entry: Entry) -> str:
    """Describe a call in one phrase: `all_reduce of [[8]] Float`."""
    sizes = [list(size) for size in entry.input_sizes]
    return f"{entry.op} of {sizes} {', '.join(entry.input_dtypes)}".rstrip()


def group(process_group: ProcessGroup) -> str:
    """Name a group: `group 72 (EXPERT_MODEL_PARALLEL_GROUP)`."""
    description = process_group.description
    if description in ("", "undefined"):
        return f"group {process_group.name or 'without a name'}"
    return f"group {process_group.name} ({description})"


def sentence(text: str) -> str:
    """Begin with a capital and leave the rest as it is."""
    return text[:1].upper() + text[1:]

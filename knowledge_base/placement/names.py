"""Names of hosts and devices: when two are the same."""

from __future__ import annotations

from collections.abc import Sequence

from rerail.lazy_patterns import lazy
from rerail.log_parsers.host_names import is_address
from rerail.log_parsers.number_ranges import ranges

_MOST_NAMED = 8
_LID = "LID "
_HEX_BUS = lazy(r"[0-9a-f]{3,12}")


def short(name: str) -> str:
    """Return a host's name without its domain; an address has none, and 10.1.0.5 is not 10.1.0.7."""
    return name if is_address(name) else name.split(".")[0]


def same_host(a: str | None, b: str | None) -> bool:
    """Tell whether two names are known to be of one host."""
    return bool(a) and bool(b) and short(a or "") == short(b or "")


def lid_address(lid: str) -> str:
    """Return what stands for a port of the InfiniBand fabric where other addresses do."""
    return f"{_LID}{int(lid)}"


def is_lid(name: str) -> bool:
    """Tell whether a name is one of `lid_address`, which is no name of a host."""
    return name.startswith(_LID)


def pci_key(address: str) -> str:
    """Normalise a PCI address: `0000:9B:00.0`, `PCI:0000:9b:00` and busId `9b000` give `9b:00`.

    A domain counts where it is not 0: on some machines each GPU is bus 1 of a domain of its own, `0019:01:00`.
    """
    text = address.lower().removeprefix("pci:")
    if text.startswith("0x"):  # nccl-tests prints the bus alone
        return f"{text[2:]}:00"
    if _HEX_BUS.fullmatch(text):
        digits = text[:-1].rjust(4, "0")
        return _with_domain(digits[:-4], f"{digits[-4:-2]}:{digits[-2:]}")
    parts = text.split(".")[0].split(":")
    return _with_domain(parts[-3] if len(parts) > 2 else "", ":".join(parts[-2:]))


def _with_domain(domain: str, address: str) -> str:
    kept = domain.lstrip("0")
    return f"{kept}:{address}" if kept else address


def named(ranks: Sequence[int]) -> str:
    """Return "rank 3", "ranks 8 to 15", "ranks 2, 5" or, of many, "ranks 3, 8-15, 40 ..."."""
    if not ranks:
        return "no rank"
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if list(ranks) == list(range(ranks[0], ranks[-1] + 1)):
        return f"ranks {ranks[0]} to {ranks[-1]}"
    if len(ranks) <= _MOST_NAMED:
        return f"ranks {', '.join(map(str, ranks))}"
    parts = ranges(ranks).split(",")
    return f"ranks {', '.join(parts[:_MOST_NAMED])}{' ...' if len(parts) > _MOST_NAMED else ''}"

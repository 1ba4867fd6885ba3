"""The most memory that this process held since it began."""

from __future__ import annotations

from pathlib import Path


def peak_bytes() -> int:
    """Return it in bytes (Linux). `ru_maxrss` would begin with what the parent held when it forked."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise OSError("/proc/self/status does not tell VmHWM")

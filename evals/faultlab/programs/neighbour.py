"""Another process on the same GPU: it holds its memory, or computes hard for a while.

What it did and when goes into a file of facts, which is no part of the evidence.
"""
# mypy: allow-untyped-calls

from __future__ import annotations

import argparse
import json
import time
from datetime import datetime
from pathlib import Path

import torch


def now() -> str:
    """Return the local time as trainers log it."""
    return datetime.now().astimezone().strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def main() -> None:
    """Hold or compute, until told to end."""
    parser = argparse.ArgumentParser(prog="neighbour.py")
    parser.add_argument("--ready", type=Path, required=True)
    parser.add_argument("--facts", type=Path, required=True)
    parser.add_argument("--leave-mib", type=int, help="hold all memory but this much")
    parser.add_argument("--burn-for", type=float, default=0.0)
    parser.add_argument("--burn-after", type=float, default=0.0)
    options = parser.parse_args()
    held = []
    torch.zeros(1, device="cuda")
    if options.leave_mib is not None:
        free, _ = torch.cuda.mem_get_info()
        held.append(torch.empty(free - (options.leave_mib << 20), dtype=torch.uint8, device="cuda"))
    options.ready.touch()
    if options.burn_for:
        time.sleep(options.burn_after)
        left = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
        began, end = now(), time.monotonic() + options.burn_for
        while time.monotonic() < end:
            for _ in range(20):
                torch.mm(left, left)
            torch.cuda.synchronize()
        options.facts.write_text(json.dumps({"slow_from": began, "slow_to": now()}))
        return
    while True:
        time.sleep(1)


if __name__ == "__main__":
    main()

"""How long the page takes: all ranks on a canvas, windows of a large log and a search through it, in a real browser.

A server of its own is started over a store of its own. What the machine does beside it only adds: of several
runs the best counts.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from rerail.evals.bench.bars import Bar
from rerail.evals.bench.generate import Dataset
from rerail.evals.serving import CALL, serving

RANKS = (5_000, 100_000)
FRAME_MS = 50.0
_SMALL = 400
_MEDIUM = 20_000_000


def measure(data: Dataset, *, runs: int) -> list[Bar]:
    """Measure the page of many ranks and of the merged log; milliseconds, and ratios of large to small."""
    missing = _missing()
    if missing:
        return [Bar("page", "all ranks drawn", FRAME_MS, None, "", True, " ms", missing)]
    home, large = data.folder / "home", data.folder / "merged.log"
    environment = {**os.environ, "RERAIL_DATA_DIR": str(home), "RERAIL_MODEL": "", "RERAIL_MODEL_URL": ""}  # fmt: skip
    incidents = {}
    for count in RANKS:
        path = data.folder / f"ranks-{count}.log"
        path.write_text(_many_ranks(count), encoding="utf-8")
        incidents[count] = _diagnosed(path, environment)
        path.unlink()
    small = data.folder / "page-small.log"
    with large.open("rb") as stream:
        small.write_bytes(b"".join(stream.readline() for _ in range(_SMALL)) + _FAULT)
    medium = data.folder / "page-medium.log"
    with large.open("rb") as stream:
        head = stream.read(min(_MEDIUM, large.stat().st_size // 10))
        medium.write_bytes(head[: head.rfind(b"\n") + 1] + _FAULT)
    logs = {path: _diagnosed(path, environment) for path in (small, medium, large)}
    clicks = [
        _clicked(data.folder, environment, logs[path], logs[small], runs)
        for path in (medium, large)
    ]
    with serving(data.folder, environment) as url:
        bars = [bar for count in RANKS for bar in _drawn(url, count, incidents[count], runs)]
        return [*bars, _click_bar(medium, large, *clicks), *_windows(url, logs, small, large, runs)]


_FAULT = b"[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"


def _missing() -> str:
    from importlib.util import find_spec

    from rerail.assistant.web import browser_files
    from rerail.errors import ConfigError

    if find_spec("playwright") is None or shutil.which("chromium") is None:
        return "no chromium or no playwright here"
    try:
        browser_files.check()
    except ConfigError as error:
        return f"{error.message}: {error.hint}"
    return ""


def _many_ranks(count: int) -> str:
    rows = [f"2026-03-01 02:00:00 [rank{r}] step 40 loss 2.1" for r in range(count)]
    late = (
        "2026-03-01 02:10:00 [rank{0}] [E301 02:10:00.1 ProcessGroupNCCL.cpp:632] [Rank {0}] Watchdog caught collective "
        "operation timeout: WorkNCCL(SeqNum=81, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for "
        "600001 milliseconds before timing out."
    )
    rows += [late.format(r) for r in range(count) if r != 437]
    return "\n".join(rows) + "\n"


def _diagnosed(path: Path, environment: dict[str, str]) -> str:
    done = subprocess.run(
        [*CALL, "diagnose", "--json", "--no-model", str(path)],
        env=environment, capture_output=True, check=False,
    )  # fmt: skip
    try:
        return str(json.loads(done.stdout)["incident"])
    except ValueError:
        raise RuntimeError(f"{path}: {done.stderr.decode(errors='replace')[-500:]}") from None


def _drawn(url: str, count: int, incident: str, runs: int) -> list[Bar]:
    from playwright.sync_api import sync_playwright

    drawn, whole = [], []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        for _ in range(runs):
            tab = browser.new_page()
            began = time.monotonic()
            tab.goto(f"{url}/incidents/{incident}", wait_until="commit")
            tab.wait_for_selector("#grid[data-ms]")
            whole.append(1000 * (time.monotonic() - began))
            drawn.append(float(tab.locator("#grid").get_attribute("data-ms") or "nan"))
            tab.close()
        browser.close()
    what, note = f"{count:,} ranks", f"{min(drawn):.0f} to {max(drawn):.0f} ms in {runs} runs"
    return [
        Bar("page", f"{what}: drawn", FRAME_MS, min(drawn), "one pass over pixels", True, " ms", note),
        Bar("page", f"{what}: from click to drawn", 2_000.0, min(whole), "a new tab", True, " ms"),
    ]  # fmt: skip


def _clicked(
    folder: Path, environment: dict[str, str], incident: str, warm: str, runs: int
) -> float:
    """Return the milliseconds from a click on the first cited line until it is drawn, each time in a new server."""
    from playwright.sync_api import sync_playwright

    took = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        for _ in range(runs):
            with serving(folder, environment) as url:
                tab = browser.new_page()
                tab.goto(f"{url}/incidents/{warm}/log")
                tab.goto(f"{url}/incidents/{incident}")
                link = tab.locator('a[href*="/log?"][href*="line="]').first
                began = time.monotonic()
                link.click(no_wait_after=True)
                tab.wait_for_selector("tr.marked")
                took.append(1000 * (time.monotonic() - began))
                tab.close()
        browser.close()
    return min(took)


def _click_bar(medium: Path, large: Path, quick: float, took: float) -> Bar:
    small, size = (f"{path.stat().st_size / 1e9:.2g} GB" for path in (medium, large))
    return Bar("page", f"cited line of {size}: from click to drawn", 2.0, took / quick, f"a log of {small}", True,
        note=f"{took:.0f} ms, small {quick:.0f} ms; a new server each time")  # fmt: skip


def _windows(url: str, logs: dict[Path, str], small: Path, large: Path, runs: int) -> list[Bar]:
    def took(path: Path, query: str, times: int = runs) -> float:
        address = f"{url}/incidents/{logs[path]}/log?{query}"
        took = min(_seconds(lambda: urlopen(address).read()) for _ in range(times))  # noqa: S310 - ours
        # Of a file that is not read where it lies only kept lines are shown: that would measure nothing.
        if b">Start</a>" not in urlopen(address).read():  # noqa: S310
            raise RuntimeError(f"{path} is not read where it lies: {address}")
        return took

    middle = large.stat().st_size // 2
    first = took(large, "line=1000000", 1)
    window, other = took(large, f"offset={middle}"), took(small, "offset=0")
    again, search = took(large, "line=1000000"), took(large, "find=no-line-says-this", 1)
    speed = large.stat().st_size / search
    size = f"{large.stat().st_size / 1e9:.2g} GB"
    return [
        Bar("page", f"window in the middle of {size}", 3.0, window / other, "the same window of a small log", True,
            note=f"{1000 * window:.0f} ms, small {1000 * other:.0f} ms"),
        Bar("page", f"line 1,000,000 of {size}, again", 3.0, again / other, "the same window of a small log", True,
            note=f"{1000 * again:.0f} ms; the first time, with the line index, {first:.1f} s"),
        Bar("page", f"search to the end of {size}", 0.1, speed / _grep(large), "bytes a second of grep -c",
            note=f"{search:.1f} s"),
    ]  # fmt: skip


def _grep(path: Path) -> float:
    """Return bytes a second of `grep`, which reads the same file from the same cache."""
    took = _seconds(
        lambda: subprocess.run(["grep", "-c", "no-line-says-this", str(path)], capture_output=True, check=False)
    )  # fmt: skip
    return path.stat().st_size / took


def _seconds(action: Callable[[], Any]) -> float:
    began = time.monotonic()
    action()
    return time.monotonic() - began

"""The page of a post-mortem in a real browser: no console message, charts drawn, and it prints."""

import os
import re
import shutil
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

LOG = "".join(
    f"2026-03-01 03:00:{s:02d} [rank0]: step {s} loss {9 / s:.3f} step_time 2.0s\n"
    for s in range(1, 50)
) + (
    "2026-03-01 03:01:00 [rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB "
    "![x](http://evil.test/q) <script>alert(1)</script>\n"
    "2026-03-01 03:11:00 [rank0]: RuntimeError: Connection closed by peer [10.0.0.7]:4711\n"
)


@pytest.fixture
def browser(tmp_path):
    names = ("chromium", "chromium-browser", "google-chrome")
    program = next((found for name in names if (found := shutil.which(name))), None)
    if program is None:
        pytest.skip("no browser: evals/cluster/install.sh chromium installs one")

    def run(path, *options):
        """Open a page; return its DOM and what the browser wrote to its console."""
        # The sandbox needs rights that a container rarely has; the page is our own.
        done = subprocess.run(
            [
                program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                "--no-first-run", "--enable-logging=stderr", f"--user-data-dir={tmp_path / 'profile'}",
                *options, path.as_uri(),
            ],
            env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=120, check=True,
        )  # fmt: skip
        return done.stdout, [row for row in done.stderr.splitlines() if "CONSOLE" in row]

    return run


@pytest.fixture
def html(job, tmp_path):
    """The page as the command writes it."""

    def run(*arguments):
        env = {**os.environ, "RERAIL_DATA_DIR": str(tmp_path / "data")}
        program = str(Path(sys.executable).parent / "rerail")
        subprocess.run(
            [program, *map(str, arguments)], env=env, capture_output=True, check=True, timeout=120
        )

    run("diagnose", job(LOG))
    run("postmortem", "last", "-o", tmp_path / "written.html")
    return (tmp_path / "written.html").read_text(encoding="utf-8")


def test_the_page_opens_quietly_and_the_browser_would_have_told(browser, html, tmp_path):
    good, bad = tmp_path / "good.html", tmp_path / "bad.html"
    good.write_text(html, encoding="utf-8")
    bad.write_text(
        html.replace("</body>", "<script>document.title = 'owned'</script></body>"), "utf-8"
    )
    dom, said = browser(good, "--dump-dom")
    assert (
        said == []
        and dom.count("<svg") == 4
        and "![rank" not in dom
        and "<img" not in dom
        and "<script" not in dom
    )
    # A script that slipped in is stopped by the page's own policy, and the console says so.
    dom, said = browser(bad, "--dump-dom")
    assert "Content Security Policy" in said[0] and "<title>owned" not in dom


def test_it_prints_on_pages_with_its_charts(browser, html, tmp_path):
    path, pdf = tmp_path / "page.html", tmp_path / "page.pdf"
    path.write_text(html, encoding="utf-8")
    browser(path, f"--print-to-pdf={pdf}", "--no-pdf-header-footer")
    data = pdf.read_bytes()
    assert 1 <= len(re.findall(rb"/Type\s*/Page\b", data)) <= 6
    drawn = b"".join(
        zlib.decompress(m[1])
        for m in re.finditer(rb"/FlateDecode[^>]*>>\s*stream\r?\n(.*?)\r?\nendstream", data, re.S)
    )
    # Colours of the failure's mark, the curve and a rank that suffered, as PDF writes them.
    colours = {bytes(m) for m in re.findall(rb"((?:[\d.]+ ){3})(?:rg|RG)\b", drawn)}
    assert {b".6431 .0745 .2353 ", b".1137 .2078 .3412 ", b".9098 .6392 .2392 "} <= colours

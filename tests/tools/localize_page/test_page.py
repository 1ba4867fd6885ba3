"""The page of `rerail localize --html` as its reader meets it, from files to shapes."""

from __future__ import annotations

import json
import re
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from rerail.assistant.cli.localize import localize_command
from rerail.assistant.cli.profiles import change_command, learn_command
from rerail.domain.series import FloatArray
from rerail.errors import UsageError
from rerail.tools.localize.findings import Finding, Localization, LocalizeOutcome
from rerail.tools.localize.heatmap_svg import HeatMap
from rerail.tools.localize.localize_paths import Judged
from rerail.tools.localize_page.grid import Line, cut, draw, levels
from rerail.tools.localize_page.page import render
from rerail.tools.profiles.channels import BETA
from rerail.tools.profiles.judge import judge_profiles
from rerail.tools.profiles.matrix import ProfileMatrix

DATA = Path(__file__).parents[2] / "data"
_VOID = {"meta"}


class Read(HTMLParser):
    """Checks that tags close in order, and keeps elements and text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] != ["style"]:
            self.text += data

    def found(self, tag: str, **wanted: str) -> list[dict[str, str | None]]:
        return [
            attrs
            for name, attrs in self.elements
            if name == tag and all(attrs.get(key.strip("_")) == v for key, v in wanted.items())
        ]


def write_job(
    folder: Path, slow: int | None, world: int = 6, gemm: float = 1000.0, name: str = "gemm_a"
) -> Path:
    folder.mkdir()
    for rank in range(world):
        events = []
        for step in range(4):
            at = step * 10_000.0
            took = gemm + rank + (800.0 if rank == slow else 0.0)
            rows = [
                (f"ProfilerStep#{step}", "user_annotation", at, 9_000.0), (name, "kernel", at, took),
                ("ncclDevKernel_AllReduce_Sum", "kernel", at + took, 5_000.0 - took),
            ]  # fmt: skip
            events += [
                {"ph": "X", "cat": cat, "name": label, "ts": ts, "dur": dur, "tid": 7}
                for label, cat, ts, dur in rows
            ]
        trace = {"distributedInfo": {"rank": rank, "world_size": world}, "traceEvents": events}
        (folder / f"rank{rank}.json").write_text(json.dumps(trace))
    return folder


def many_ranks(workers: int, slow: tuple[int, ...], times: float = 3.0) -> ProfileMatrix:
    """Return a window of two stages with six kernels; kernel_2 is longer on the slow ranks."""
    random = np.random.default_rng(5)
    role = np.arange(workers) % 2
    by_step = np.stack(
        [
            np.where(role, 0.03 * (f + 1), 0.02 * (f + 1))
            * (1 + 0.01 * random.standard_normal((4, workers)))
            for f in range(6)
        ]
    ).astype(np.float32)
    by_step[2][:, list(slow)] *= times
    pattern = np.full((6, 3, workers), np.nan, dtype=np.float32)
    pattern[:, BETA] = by_step.mean(axis=1)
    return ProfileMatrix(
        np.arange(workers), workers, role, ("stage 0", "stage 1"), True,
        tuple(f"node{w // 8}" for w in range(workers)), tuple(f"kernel_{f}" for f in range(6)),
        ("matmul",) * 6, np.zeros(6, dtype=bool), pattern, by_step, np.ones((4, workers)),
        by_step.sum(axis=0, dtype=np.float64), True, (),
    )  # fmt: skip


def page_of(matrix: ProfileMatrix, name: str = "job") -> str:
    ratio: FloatArray = matrix.own_s.T / np.median(matrix.own_s)
    heat = HeatMap(
        "own compute", ratio, tuple(map(str, matrix.ranks.tolist())),
        tuple(map(str, range(matrix.steps))),
    )  # fmt: skip
    return render([Judged(judge_profiles(name, matrix), heat, matrix)])


def test_the_slow_rank_is_named_priced_and_outlined(tmp_path: Path, capsys) -> None:
    job, html = write_job(tmp_path / "job", slow=4), tmp_path / "page.html"
    assert localize_command([job], html=html) == 0
    assert f"page written to {html}" in capsys.readouterr().out
    page = Read(html.read_text())
    assert localize_command([job], json_output=True) == 0
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert finding["reason"] in page.text
    assert f"{1e6 * finding['lost_per_step_s']:.3g} us a step" in page.text
    assert f"{1e3 * finding['lost_s']:.3g} ms in the steps that were seen" in page.text
    assert page.found("rect", class_="mark")
    assert "all compute kernels, rank 4: +" in page.text
    assert "6 ranks, 4 steps of 10 ms" in page.text


def test_nothing_runs_and_nothing_is_fetched(tmp_path: Path) -> None:
    html = tmp_path / "page.html"
    localize_command([DATA / "kineto/dlrm"], html=html)
    text = html.read_text()
    page = Read(text)
    assert not page.found("script") + page.found("link") + page.found("img") + page.found("iframe")
    assert not [key for _, attrs in page.elements for key in attrs if key.startswith("on")]
    assert not [v for _, attrs in page.elements for k, v in attrs.items() if k in ("src", "href")]
    assert "url(" not in text
    assert "@import" not in text
    (policy,) = [attrs for attrs in page.found("meta") if "http-equiv" in attrs]
    assert policy["content"] == "default-src 'none'; style-src 'unsafe-inline'"


def test_a_real_job_of_one_step_is_described_and_nobody_is_named(tmp_path: Path) -> None:
    html = tmp_path / "page.html"
    assert localize_command([DATA / "kineto/dlrm"], html=html) == 10
    page = Read(html.read_text())
    assert "No rank is named." in page.text
    assert "1 step only" in page.text
    assert "8 ranks, 1 step of 16.1 ms, 242 functions" in page.text
    assert not page.found("rect", class_="mark")
    assert not page.found("path", class_="guilty")


def test_names_from_a_trace_stay_text(tmp_path: Path) -> None:
    bad = '<script>alert("x")</script>&"\'><b>gemm'
    html = tmp_path / "page.html"
    localize_command([write_job(tmp_path / "job", slow=1, name=bad)], html=html)
    page = Read(html.read_text())
    assert not page.found("script") + page.found("b")
    assert bad in page.text


def test_pictures_have_words_and_colours_contrast(tmp_path: Path) -> None:
    text = page_of(many_ranks(40, (7,)))
    page = Read(text)
    ids = [attrs["id"] for _, attrs in page.elements if attrs.get("id")]
    assert len(ids) == len(set(ids))
    pictures = page.found("svg", role="img")
    assert pictures
    for picture in pictures:
        for name in str(picture["aria-labelledby"]).split():
            assert name in ids
    assert all(a.get("role") == "img" or a.get("aria-hidden") for a in page.found("svg"))
    style = text[text.index("<style>") : text.index("</style>")]
    light, dark = (
        dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", part))
        for part in style.split("prefers-color-scheme: dark", 1)
    )
    assert set(light) == set(dark)
    for theme in (light, dark):
        for ink in ("ink", "soft", "bad", "warn", "good", "link"):
            assert contrast(theme[ink], theme["page"]) >= 4.5
            assert contrast(theme[ink], theme["card"]) >= 4.5
        for strong in ("u4", "u5", "d4", "d5", "w4", "w5"):
            assert contrast(theme[strong], theme["zero"]) >= 3
        assert contrast(theme["ink"], theme["zero"]) >= 4.5


def contrast(one: str, other: str) -> float:
    """Return the contrast ratio of two colours (WCAG 2.2, relative luminance)."""

    def luminance(colour: str) -> float:
        channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_many_ranks_become_named_ones_and_quantiles() -> None:
    slow = (1501, 1777)
    text = page_of(many_ranks(4000, slow))
    page = Read(text)
    assert len(text.encode()) < 300_000
    assert "the remaining 3998 of 4000 ranks are spread" in page.text
    assert re.search(r"kernel_2, rank 1501: \+\d{2,3} %", page.text)
    for name in ("least", "p50", "p99", "most"):
        assert f">{name}<" in text
    # The slow ranks are not in the quantiles: nothing else is longer than expected.
    assert not re.search(r"kernel_\d, rank (?:p\d+|most)", page.text)


def test_a_page_stays_small_when_everything_is_named() -> None:
    matrix = many_ranks(20_000, tuple(range(0, 20_000, 7)), 2.0)
    verdict = judge_profiles("job", matrix)
    every = tuple(range(20_000))
    for number in range(300):
        verdict.findings.append(
            Finding(
                f"kind {number}", "kernel_1", every, "beta", "x" * 300, 2.0, 0.1, 0.4,
                "infrastructure",
            )
        )  # fmt: skip
    verdict.missing += ["a note"] * 500
    page = render([Judged(verdict, None, matrix)])
    assert len(page.encode()) < 1_000_000
    assert re.search(r"And 26\d more findings", page)
    assert "and 460 more" in page


def test_the_window_is_held_against_healthy_ones(tmp_path: Path) -> None:
    well, sick = (
        write_job(tmp_path / "well", None),
        write_job(tmp_path / "sick", None, gemm=1600.0),
    )
    boxes, html = tmp_path / "boxes.json", tmp_path / "page.html"
    learn_command([well], boxes)
    assert localize_command([sick], html=html, expected=boxes) == 0
    page = Read(html.read_text())
    assert f"in healthy windows ({boxes}), learned from {well}: 6 ranks, 4 steps" in page.text
    boxes_drawn = page.found("rect", class_="healthybox")
    assert len(boxes_drawn) == 2
    assert all(150 <= float(str(one["x"])) <= 770 for one in boxes_drawn)
    assert "all compute kernels, rank 0: +" in page.text
    # All ranks alike are as expected beside each other, and too long beside the healthy window.
    assert localize_command([sick], html=html) == 3
    assert "gemm_a, rank 0" not in html.read_text()
    localize_command([sick], html=html, expected=boxes)
    assert "gemm_a, rank 0: +" in html.read_text()


def test_before_and_after_stand_on_one_page(tmp_path: Path, capsys) -> None:
    then, now = (
        write_job(tmp_path / "a", None),
        write_job(tmp_path / "b", slow=2, gemm=1500.0),
    )
    html = tmp_path / "page.html"
    assert change_command(then, [now], json_output=True, html=html) == 0
    json.loads(capsys.readouterr().out)
    page = Read(html.read_text())
    assert "What changed" in page.text
    assert str(then) in page.text
    assert re.search(r"gemm_a\s*all\s*1 ms\s*1\.5 ms\s*\+501 us", page.text)
    assert "rank 2" in page.text
    assert page.found("rect", class_="longer")
    assert change_command(then, [then], json_output=False, html=html) == 3
    assert "No function changed" in html.read_text()


def test_other_inputs_have_a_page_too(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    html = tmp_path / "page.html"
    trace = DATA / "straggler_ar/trace-AR.parquet"
    assert localize_command([trace], html=html) == 0
    page = Read(html.read_text())
    assert "dp_rank 0, stage 0" in page.text
    assert "without stragglers" in page.text
    assert "Workers by steps" in page.text
    assert "worker 0 (dp 0, stage 0)" in page.text
    log = tmp_path / "train.log"
    log.write_text("GPU relative performance:\n  Rank=17 Node=n05 Score=0.61\n")
    assert localize_command([log, trace], html=html) == 0
    assert "rank 17 on n05" in Read(html.read_text()).text


def test_a_page_that_cannot_be_written_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = write_job(tmp_path / "job", slow=None)
    with pytest.raises(UsageError, match="cannot be written"):
        localize_command([job], html=tmp_path / "nowhere" / "page.html")
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(UsageError, match="jinja2"):
        localize_command([job], html=tmp_path / "page.html")


def test_shades_follow_the_distance() -> None:
    values = np.array([[0.0, 0.04, 0.05, 0.3, 0.5, -0.11, np.nan, 9.0]])
    assert levels(values)[0].tolist() == [0, 0, 1, 3, 5, -2, 0, 5]
    absent = np.zeros_like(values)
    absent[0, 7] = 1
    grid = draw(values, [Line("f")], [str(i) for i in range(8)], absent=absent)
    assert [shade for shade, _ in grid.fills] == ["d2", "n", "u1", "u3", "u5", "z"]
    assert sum(path.count("M") for _, path in grid.fills) == 6
    waits = draw(values, [Line("f", waiting=True)], [str(i) for i in range(8)])
    assert {shade[0] for shade, _ in waits.fills} == {"v", "n", "w", "z"}


def test_long_names_keep_both_ends() -> None:
    assert cut("short") == "short"
    name = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_qkv"
    assert len(cut(name)) == 37
    assert cut(name).endswith("128x128x64_qkv")
    assert cut(name).startswith("sm90_xmma")


def test_a_verdict_without_pictures_is_a_page() -> None:
    page = Read(render([Judged(Localization("x.csv", LocalizeOutcome.HEALTHY))]))
    assert "healthy: nothing stands out" in page.text
    assert not page.found("svg")

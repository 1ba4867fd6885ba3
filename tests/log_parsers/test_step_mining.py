"""Step lines of programs that nobody told rerail about are found, and nothing else is taken for one."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
import yaml

from rerail.assistant.pipeline import diagnose_paths
from rerail.assistant.step_logs import read_step_log
from rerail.errors import EvidenceError
from rerail.log_parsers.collect import ScanPlan, collect
from rerail.log_parsers.metrics import StepReader
from rerail.log_parsers.mined_layouts import LEAST_ROWS, PATH
from rerail.log_parsers.piece import Piece
from rerail.log_parsers.room import WHOLE_FILE
from rerail.log_parsers.step_mining import StepMiner
from rerail.log_parsers.step_numbers import StepRow
from rerail.tools.detectors.detect import detect

LAYOUTS = yaml.safe_load(PATH.read_text())["layouts"]
# The count and the loss of each example, as it writes them, and the other numbers that are to be read.
KNOWN = {
    "Coqui TTS": ("120", "0.06123", {"grad_norm": 1.2, "step_time": 0.5912}),
    "ESPnet": ("150", "87.231", {"step_time": 0.803, "learning_rate": 1.2e-5}),
    "OpenNMT-py": ("150", "7.093", {"learning_rate": 0.00012}),
    "Marian NMT": ("1500", "7.09312", {"grad_norm": 1.2031, "step_time": None}),
    "Stable-Baselines3": (
        "15",
        "7.093",
        {"learning_rate": 0.0003, "throughput": 812.0, "step_time": None},
    ),
    "GloVe": ("015", "0.070931", {}),
    "Darknet": ("150", "7.093120", {"learning_rate": 0.001, "step_time": 3.412}),
    "llama2.c": ("150", "7.0931", {"learning_rate": 1.2e-5, "step_time": 0.8124}),
    "LightGBM": ("150", "0.709312", {}),
    "DeepSpeech": ("150", "70.931200", {"step_time": None}),
    "Tacotron 2": ("150", "7.093120", {"grad_norm": 1.2031, "step_time": 1.41}),
    "HiFi-GAN": ("150", "70.931", {"step_time": 0.412}),
    "WeNet": ("1500", "70.931200", {"learning_rate": 1.2e-5, "step_time": None}),
    "SpeechBrain": ("150", "7.09", {"learning_rate": 1e-3, "step_time": None}),
    "XGBoost": ("150", "0.70931", {}),
    "BasicSR": ("150", "7.0931e-02", {"learning_rate": 2e-4, "step_time": None}),
}


def losses(count: int, nan_from: int | None = None) -> list[float]:
    return [
        math.nan
        if nan_from is not None and i >= nan_from
        else 2 * math.exp(-i / 30) + 0.03 * (i * 7 % 5)
        for i in range(count)
    ]


def printed(layout: dict[str, str], count: int = 40, nan_from: int | None = None) -> list[str]:
    """The example as the program prints it step after step: only its count and its loss move."""
    step, loss, _ = KNOWN[layout["program"]]
    out: list[str] = []
    for at, value in enumerate(losses(count, nan_from)):
        text = re.sub(
            rf"(?<![\d.,]){step}(?=batch|\D)(?!\.\d)(?=[^\n]|\n)",
            f"{int(step) + 10 * at:0{len(step)}d}",
            layout["example"],
            count=0 if step != "15" else 1,
        )
        out += text.replace(loss, f"{value:.5f}").rstrip("\n").split("\n")
    return out


def mine(lines: list[str]) -> list[StepRow]:
    raw = [line.encode() for line in lines]
    miner = StepMiner()
    if not miner.learn(raw):
        return []
    miner.feed(raw, 1)
    return miner.finish()


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda one: one["program"])
def test_a_layout_that_no_form_knows_is_mined(layout: dict[str, str]) -> None:
    assert layout["source"].startswith("https://")
    lines = printed(layout)
    reader = StepReader()
    reader.feed(Piece(("\n".join(lines) + "\n").encode()), 1)
    reader.finish()
    # A form may read the lines and take another number for the step; then the step never moves.
    assert not reader.tells(LEAST_ROWS)
    rows = mine(lines)
    step, _, others = KNOWN[layout["program"]]
    assert [row.step for row in rows] == [int(step) + 10 * at for at in range(40)]
    assert [row.loss for row in rows] == [round(value, 5) for value in losses(40)]
    for name, value in others.items():
        assert getattr(rows[3], name) == (None if value is None else pytest.approx(value))
    for row in rows:
        assert f"{row.loss:.5f}" in lines[row.line - 1]


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda one: one["program"])
def test_a_mined_loss_that_becomes_nan_is_a_failure(layout: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text("\n".join(printed(layout, 60, nan_from=40)) + "\n")
    found = diagnose_paths([path]).diagnosis
    assert found.failure_type == "loss_nan" and found.first_fault is not None
    assert "nan" in found.first_fault.text


def test_what_is_mined_is_never_established(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    tts = next(one for one in LAYOUTS if one["program"] == "Coqui TTS")
    path.write_text("\n".join(printed(tts, 60, nan_from=40)) + "\n")
    found = diagnose_paths([path]).diagnosis
    assert (found.failure_type, found.status.value) == ("loss_nan", "supported")


def test_a_file_that_is_not_kept_whole_is_mined_as_it_streams(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    noise = "2026-03-01 10:00:07 INFO loader: fetched a shard from the store in time for the next epoch of the run\n"
    with path.open("w") as out:
        for step in range(1, 2_001):
            loss = "nan" if step > 1_500 else f"{3 - step / 1000:.4f}"
            out.write(
                f"{step} | loss {loss} | lr 1.0e-03 | {100 + step % 7}.40ms | mfu 12.3%\n"
                + noise * 20
            )
    assert path.stat().st_size > WHOLE_FILE
    (view,) = collect([path], ScanPlan(())).views
    rows = [row for row in view.survey.steps if row.form == "mined"]
    assert [row.step for row in rows] == list(range(1, 2_001))
    assert [row.line for row in rows] == [21 * at + 1 for at in range(2_000)]
    found = diagnose_paths([path]).diagnosis
    assert found.failure_type == "loss_nan" and found.first_fault is not None
    assert found.first_fault.line == 21 * 1_500 + 1


def test_epochs_restarts_and_ranks_keep_their_steps() -> None:
    epochs = [
        f"E {e} | Steps: {s} | Loss: {3 - e - s / 100:.4f}" for e in range(2) for s in range(1, 41)
    ]
    assert [row.step for row in mine(epochs)] == [*range(1, 41), *range(1, 41)]
    again = [f"Steps: {s} | Loss: {3 - s / 100:.4f}" for s in [*range(1, 61), *range(41, 90)]]
    assert [row.step for row in mine(again)] == [*range(1, 61), *range(41, 90)]
    ranks = [
        f"[rank{r}]: Steps: {s} | Loss: {3 - s / 100 + r:.4f}"
        for s in range(1, 41)
        for r in range(4)
    ]
    rows = mine(ranks)
    assert len(rows) == 160 and {row.rank for row in rows} == {0, 1, 2, 3}
    assert [row.loss for row in rows if row.rank == 2] == [
        round(5 - s / 100, 4) for s in range(1, 41)
    ]


@pytest.mark.parametrize(
    "form",
    [
        "Validation {i} | val_loss {x:.4f}",
        "best loss so far {x:.4f} after {i} trials of the search",
        "Progress: {p:.1f}% lr: 0.01 avg.loss: {x:.4f} ETA: 0h {i}m",
        "10:{m:02d}:07 loss {x:.4f}",
        "2026-03-01 10:00:{m:02d},123 loss {x:.4f}",
        "GPU {i} memory {x:.2f} GiB lost {i} packets, loss {i}%",
        "loss {x:.4f} at port {i}",
        "gpu memory 41.2GiB {i} MiB: loss {x:.4f}",
        "packet loss: {i} of 100, rtt {x:.3f} ms",
        "eval step {i}: eval_loss {x:.4f}",
        "downloaded shard {i}/512 in {x:.2f} s, no loss of data",
        "Loss function number {i} was built",
        "step_size {x:.4f} seed {i} loss_scale 65536",
        "worker {i} loss {x:.4f}",
    ],
)
def test_what_is_no_step_line_is_not_taken_for_one(form: str) -> None:
    lines = [form.format(i=i, x=3 - i / 100, p=i / 2, m=i % 60) for i in range(1, 60)]
    assert mine(lines) == []


def test_a_column_per_gpu_gives_the_first_and_not_four_series() -> None:
    lines = [
        f"Steps: {i} | loss: {3 - i / 100:.3f} {4 - i / 100:.3f} {5 - i / 100:.3f}"
        for i in range(1, 40)
    ]
    assert [row.loss for row in mine(lines)] == [round(3 - i / 100, 3) for i in range(1, 40)]


def test_mined_and_known_forms_agree_on_the_recorded_jobs() -> None:
    agreed = mined = 0
    for path in sorted(Path("tests/data").rglob("*.log")):
        data = path.read_bytes()
        miner = StepMiner()
        if b"\0" in data[:4096] or not miner.learn(data.split(b"\n")):
            continue
        miner.feed(data.split(b"\n"), 1)
        reader = StepReader()
        reader.feed(Piece(data), 1)
        known = {row.line: row for row in reader.finish()}
        for row in miner.finish():
            mined += 1
            other = known[row.line]  # no line that the forms do not know
            agreed += (row.step, row.loss) == (other.step, other.loss) or math.isnan(row.loss or 0)
    assert agreed == mined > 300


def test_a_log_of_known_lines_is_not_mined(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text("".join(f"step {s} loss {2 / s:.5f}\n" for s in range(1, 60)))
    (view,) = collect([path], ScanPlan(())).views
    assert {row.form for row in view.survey.steps} == {"step"}


def test_a_log_without_steps_says_so(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text("".join(f"worker {i} lost its way at {i / 7:.3f}\n" for i in range(60)))
    with pytest.raises(EvidenceError, match="no step lines"):
        read_step_log(path)


UNNAMED = [
    # What stands there, the word beside the number that breaks, whether the counter is called a step.
    ("ep=0;st={i};ls={x:.3f}", "ls", False),
    ("[train] k={i:05d} J={x:.5f} |g|=0.3{j} eta=1e-3", "j", False),
    ("<step id='{i}'><L>{x:.4f}</L><t>0.41</t></step>", "l", True),
    ("2026-03-01T10:00:{m:02d}Z INFO trainer.loop - tick {i} -> crit={x:.4f}", "crit", False),
    ("INFO optimizer | upd {i:>6} | obj {x:.4e} | lr 1e-4", "obj", True),
    ("round {i}/900 perplexity {x:.2f} tokens 8192", "perplexity", False),
    ("update {i}, energy -{x:.4f}, force 0.0{j}", "energy", True),
]
NAMED = [
    "Finished minibatch no. {i} of 5000; mean cross entropy now {x:.3f}, took 0.4s",
    "cycle#{i} train_loss~{x:.3f} grad~0.3",
    '{{"upd": {i}, "nll": {x:.4f}, "wps": 1001.0}}',
    "Schritt {i}: Verlust = {x:.3f}",
    "шаг {i}: потери {x:.4f}",
    "步数 {i} 损失 {x:.4f}",
    "Finished minibatch number {i} in 0.8 seconds, training loss is now {x:.4f}.",
    "==== UPDATE {i} of 300 ====\n    loss ........ {x:.4f}\n    duration .... 0.811 sec",
    "update {i}\nloss............{x:.4f}",
    "- iteration: {i}\n  train:\n    crossent: {x:.4f}\n    seconds: 0.8{j}",
]


def filled(form: str, count: int = 60, nan_from: int | None = None) -> list[str]:
    return [
        form.format(i=100 + i, x=x, j=i * 7 % 10, m=i % 60)
        for i, x in enumerate(losses(count, nan_from))
    ]


@pytest.mark.parametrize("form", NAMED)
def test_words_for_a_loss_are_known_in_other_languages_and_with_other_signs(
    form: str, tmp_path: Path
) -> None:
    rows = mine("\n".join(filled(form)).split("\n"))
    assert [row.step for row in rows] == list(range(100, 160))
    assert [row.loss for row in rows] == pytest.approx(losses(60), abs=1e-3)
    path = tmp_path / "train.log"
    path.write_text("\n".join(filled(form, nan_from=40)) + "\n")
    found = diagnose_paths([path]).diagnosis
    assert found.failure_type == "loss_nan" and found.progress["last_step"] == 159


@pytest.mark.parametrize(("form", "name", "steps"), UNNAMED)
def test_a_number_that_no_word_calls_a_loss_counts_only_where_it_breaks(
    form: str, name: str, steps: bool, tmp_path: Path
) -> None:
    rows = mine(filled(form))
    assert [row.step for row in rows] == list(range(100, 160))
    assert {(row.form, row.value_name, row.loss) for row in rows} == {
        ("mined" if steps else "counted in training", name, None)
    }
    good, bad = tmp_path / "good.log", tmp_path / "bad.log"
    good.write_text("\n".join(filled(form)) + "\n")
    bad.write_text("\n".join(filled(form, nan_from=40)) + "\n")
    healthy, broken = (diagnose_paths([path]).diagnosis for path in (good, bad))
    # How far the training came is said only where a word calls the counter a step.
    assert healthy.failure_type in (None, "no_failure") and bool(healthy.progress) == steps
    assert (broken.failure_type, broken.status.value) == ("loss_nan", "supported")
    assert broken.first_fault is not None and broken.first_fault.line == 41


@pytest.mark.parametrize(
    "form",
    [
        "| {i} | {x:.3f} | 0.3{j} | 1e-4 |",
        "{i}\t{x:.4f}\t0.3{j}\t1.2",
        "keepalive {i} drift {x:.5f}",
        "sample {i} tensor_pipe {x:.3f}",
        "Candidate {i} scored with result: {x:.4f}",
        "calibration step {i} range {x:.4f}",
    ],
)
def test_a_count_that_no_word_calls_training_is_no_verdict(form: str, tmp_path: Path) -> None:
    path = tmp_path / "out.log"
    path.write_text("\n".join(filled(form, nan_from=40)) + "\n")
    assert diagnose_paths([path]).diagnosis.failure_type is None
    if form.startswith("calibration"):
        return
    (series,) = read_step_log(path)
    report = detect(series)
    assert report.outcome.value == "insufficient" and "not known to be training" in report.reason


# The last is no file that is kept whole.
@pytest.mark.parametrize(("label", "count"), [("", 60), ("[rank1]: ", 60), ("", 10_000)])
def test_what_a_known_form_does_not_name_is_mined_from_its_lines(
    label: str, count: int, tmp_path: Path
) -> None:
    form = label + "step {i}, energy {x:.4f}, 0.6{j}2 sec/step" + " " * 200
    path = tmp_path / "train.log"
    path.write_text("\n".join(filled(form, count)) + "\n")
    (view,) = collect([path], ScanPlan(())).views
    rows = view.survey.steps
    assert {(row.form, row.value_name, row.loss) for row in rows} == {("step", "energy", None)}
    assert {row.rank for row in rows} == {1 if label else None}
    assert [row.step for row in rows[:60]] == list(range(100, 160))
    assert [row.value for row in rows[:60]] == pytest.approx(losses(count)[:60], abs=1e-3)
    assert len({row.line for row in rows}) == len(rows)
    assert diagnose_paths([path]).diagnosis.failure_type == "no_failure"
    path.write_text("\n".join(filled(form, count, nan_from=count - 20)) + "\n")
    broken = diagnose_paths([path]).diagnosis
    assert (broken.failure_type, broken.status.value) == ("loss_nan", "supported")
    assert broken.first_fault is not None and broken.first_fault.line == count - 19
    assert broken.progress["last_step"] == 99 + count


@pytest.mark.parametrize(
    "form",
    [
        "step {i}, energy {x:.4f}, lr 1e-4, loss 0.{i}",  # the form reads a loss
        "step {i}, queue {j}, mem {x:.1f}GB, 0.612 sec/step",
        "step {p}, energy {x:.4f}, 0.6{j}2 sec/step",
    ],
)
def test_no_value_is_mined_from_lines_that_have_one_or_measure_nothing(
    form: str, tmp_path: Path
) -> None:
    path = tmp_path / "train.log"
    path.write_text(
        "".join(
            form.format(i=100 + i, p=i * 7919 % 4001, x=x, j=i % 3) + "\n"
            for i, x in enumerate(losses(60))
        )
    )
    (view,) = collect([path], ScanPlan(())).views
    assert len(view.survey.steps) == 60
    assert {row.value for row in view.survey.steps} == {None}


def test_a_number_without_a_name_that_is_none_now_and_then_is_no_fault(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    values = [math.nan if at in (20, 21, 22, 23, 40) else 2 + at % 7 / 10 for at in range(60)]
    path.write_text("".join(f"unit {at} score {x:.3f}\n" for at, x in enumerate(values)))
    (view,) = collect([path], ScanPlan(())).views
    assert len(view.survey.counted) == 60
    assert diagnose_paths([path]).diagnosis.failure_type is None


@pytest.mark.parametrize(
    "form",
    [
        "sample {i}: temp 6{j}.52 power 31{j}.41 util {x:.1f}",
        "worker 3 batch {i} decode 0.42{j} augment 0.43{j} ratio {x:.4f}",
        "tick {i} energy 0.4{j} cache hit rate {x:.4f}",
    ],
)
def test_a_share_or_a_rate_that_is_none_any_more_is_no_loss(form: str, tmp_path: Path) -> None:
    path = tmp_path / "loader.log"
    path.write_text("\n".join(filled(form, nan_from=40)) + "\n")
    assert diagnose_paths([path]).diagnosis.failure_type in (None, "no_failure")


def test_the_rank_that_a_process_tells_counts_for_more_than_its_launchers_label(
    tmp_path: Path,
) -> None:
    fronts = {1023: "[default7]:[rank1023]: ", 5: "3: [rank5]: ", 6: "[1,0]<stdout>:[rank6]: "}
    for form in (
        "iteration {i}/ 100 | elapsed time per iteration (ms): 10{i}.1 | lm loss: {x:.4f} |",
        "tick {i} -> crit={x:.4f}",
    ):
        path = tmp_path / "train.log"
        rows = [fronts[rank] + text for text in filled(form) for rank in (1023, 5, 6)]
        path.write_text("\n".join(rows) + "\n")
        assert {series.rank for series in read_step_log(path)} == {1023, 5, 6}


def test_the_heading_of_a_table_names_its_columns() -> None:
    body = [f"| {i} | {x:.3f} | 0.3{i % 10} |" for i, x in enumerate(losses(40))]
    rows = mine(["+------+", "| step | train loss | grad norm |", "|---|---|---|", *body])
    assert [row.loss for row in rows] == pytest.approx(losses(40), abs=1e-3)
    assert rows[3].grad_norm == 0.33 and rows[3].form == "mined"
    assert {row.loss for row in mine(["| a | b |", *body])} == {None}
    body = [f"{i},{x:.3f},0.3{i % 10}" for i, x in enumerate(losses(40))]
    assert [row.loss for row in mine(["iter,loss,lr", *body])] == pytest.approx(
        losses(40), abs=1e-3
    )


@pytest.mark.parametrize(
    "form",
    [
        "downloaded shard {i}/512 in {x:.2f} s",
        "icmp_seq={i} ttl=64 time={x:.1f} ms",
        "[17641{i:05d}] temperature {x:.2f}",
        "request {p} took {x:.3f}",
        "worker {i} load {x:.3f}",
        "fold {q} score {x:.3f}",
        "Epoch: [0] [{i}/1828] eta: 0:12:11 time: {x:.4f} data: {x:.4f} max mem: 4012",
        "eval batch {i}: accuracy {x:.3f}",
        "sample {i}: temp 6{x:.2f} power 31{x:.1f} util {x:.1f}",
        "sample {i}: gpu_util {x:.1f} hit ratio {x:.3f} power_avg {x:.2f}",
        "Quantizing layer {i} of 80, avg loss {x:.4f}",
        "layer {i}/80 loss {x:.4f} time 1.2s",
        "trial {i}/200 loss {x:.4f}",
        "[sweep] run {i}: final loss {x:.4f}",
        "block {i} mse loss: {x:.4f}",
        "Scoring sample {i}/400 loss {x:.3f}",
    ],
)
def test_what_counts_and_measures_other_things_is_no_series(form: str) -> None:
    lines = [
        form.format(i=i, x=2 + (i * 7 % 13) / 10, p=(i * 7919) % 4001, q=i % 5) for i in range(60)
    ]
    assert mine(lines) == []


@pytest.mark.parametrize(
    "line",
    [
        "Finished minibatch number {i} in {t} seconds, training loss is now 2.{x}.",
        '{{"evt": "opt", "step": {i}, "metrics": {{"nll": 2.{x}, "wall": {t}}}}}',
        "<< upd={i} >> objective -> 2.{x} ;; took {t}s ;; rss 12002 MB",
        "step {i} loss 2.{x} (fetch time {t}s) duration {t} sec",
    ],
)
def test_a_time_that_is_measured_anew_at_each_step_is_the_step_time(line: str) -> None:
    """Elapsed times that only grow are none, and of two times beside a step neither is taken."""
    rows = mine([line.format(i=i, x=i * 7 % 97, t=f"{0.8 + i % 5 / 100:.3f}") for i in range(60)])
    several = "fetch" in line
    assert rows and all((row.step_time is None) is several for row in rows)
    grown = mine([line.format(i=i, x=i * 7 % 97, t=f"{0.8 * (i + 1):.3f}") for i in range(60)])
    assert grown and all(row.step_time is None for row in grown)


@pytest.mark.parametrize(
    ("heading", "line"),
    [
        ("step  time(s)  loss", "{i}  {t:.3f}  {x:.4f}"),
        ("| iter | loss | time [ms] |", "| {i} | {x:.4f} | {ms:.1f} |"),
        ("", "it {i} | {ms:,.1f} ms/step | loss {x:.3f}"),
        ("", "step {i}....... loss .....{x:.4f} ..... ms/step ..... {ms:.0f}"),
        ("", "шаг {i} потеря {x:.4f} время шага {t:.3f} сек"),
    ],
)
def test_the_time_of_a_step_is_read_with_its_unit(heading: str, line: str, tmp_path: Path) -> None:
    """Of columns, of numbers with commas between their thousands, between leader dots."""
    times = [1.2 + n % 7 / 100 for n in range(60)] + [3.6 + n % 7 / 100 for n in range(60)]
    rows = [line.format(i=n, x=3 - n / 500, t=t, ms=1000 * t) for n, t in enumerate(times, 1)]
    (tmp_path / "train.log").write_text("\n".join([heading, *rows]))
    (series,) = read_step_log(tmp_path / "train.log")
    assert series.step_time_s.tolist() == pytest.approx(times, abs=6e-4)
    assert diagnose_paths([tmp_path]).diagnosis.failure_type == "fail_slow_unexplained"


@pytest.mark.parametrize("front", ["", "2026-03-03 10:00:01,123 INFO train: "])
def test_a_printed_dict_tells_its_numbers_by_its_keys(front: str) -> None:
    found = mine(
        [
            f"{front}{{'step': {n}, 'train_loss': {3 - n / 500:.3f}, 'lr': 0.0003, 'step_time': 2.{n % 7}4}}"
            for n in range(1, 61)
        ]
    )
    assert [row.loss for row in found] == pytest.approx(
        [3 - n / 500 for n in range(1, 61)], abs=1e-3
    )
    assert found[1].step_time == 2.24 and found[1].step == 2


@pytest.mark.parametrize("name", ["global batch size: {w} |", "bs {w}", "seq_len {w}"])
def test_steps_that_have_more_to_do_are_not_slow(name: str, tmp_path: Path) -> None:
    """Neither to `diagnose` nor to `detect`; a step that takes longer for the same work is."""
    for grows in (True, False):
        path = tmp_path / f"{grows}.log"
        path.write_text(
            "".join(
                f"step {n} {name.format(w=96 if grows and n > 150 else 32)} loss {3 - n / 500:.3f} "
                f"step_time {(0.8 if n <= 150 else 2.3) + n % 5 / 100:.3f}s\n"
                for n in range(1, 301)
            )
        )
        slow = diagnose_paths([path]).diagnosis.failure_type == "fail_slow_unexplained"
        assert slow is not grows
        assert (detect(read_step_log(path)[0]).outcome == "fail_slow") is not grows


def test_a_rank_in_front_is_no_step_where_the_step_is_known(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text(
        "".join(
            f"global_rank={rank} host=n{rank // 8} INFO step {step} loss 2.{step}\n"
            for step in range(1, 5)
            for rank in range(64)
        )
    )
    (view,) = collect([path], ScanPlan(())).views
    assert {row.step for row in view.survey.steps} == {1, 2, 3, 4}


@pytest.mark.parametrize(
    "line", ["第{}步 损失 {:.4f} 耗时{:.2f}秒", "шаг {} потери {:.4f} время {:.2f}сек"]
)
def test_a_number_ends_where_a_unit_in_other_letters_begins(line: str) -> None:
    """None of the lines is lost, and the time of each step is read."""
    found = mine([line.format(n, 3.0 + n % 7 / 100, 0.8 + n % 9 / 100) for n in range(1, 61)])
    assert [row.step for row in found] == list(range(1, 61))
    assert [row.step_time for row in found] == [
        pytest.approx(0.8 + n % 9 / 100) for n in range(1, 61)
    ]


@pytest.mark.parametrize(
    "line",
    [
        "May 06 08:00:00 node-b7 worker[4411]: round #{} objective={:.4f} dur=0.80s",
        ">> update {}\n   L_total  {:.4f}\n   L_reg  0.12",
        "[{:4d}/900] ce: {:.4f} (0.80s/it)",
        "loss@{}={:.4f}",
        "paso {}/900 perdida={:.4f}",
    ],
)
def test_a_count_may_stand_behind_a_pid_or_at_the_name_of_the_loss(line: str) -> None:
    text = "\n".join(line.format(n, 3.0 + n % 7 / 100) for n in range(1, 61))
    found = mine(text.split("\n"))
    assert [row.step for row in found] == list(range(1, 61))
    assert [row.loss for row in found] == pytest.approx([3.0 + n % 7 / 100 for n in range(1, 61)])


@pytest.mark.parametrize(
    "line", ["ep {:.2f} ce {:.4f} sec/it {:.3f}", "<epoch={:.3f}> nll {:.4f} took {:.3f}s"]
)
def test_epochs_that_are_counted_in_parts_count_the_rows(line: str) -> None:
    found = mine([line.format(n / 50, 3.0 + n % 7 / 100, 0.8 + n % 9 / 100) for n in range(1, 121)])
    assert [row.epoch for row in found] == pytest.approx([n / 50 for n in range(1, 121)])
    assert {row.step for row in found} == {None}
    assert [row.step_time for row in found] == pytest.approx(
        [0.8 + n % 9 / 100 for n in range(1, 121)]
    )
    falling = mine([line.format(5 - n / 50, 3.0 + n % 7 / 100, 0.8) for n in range(1, 121)])
    assert not falling

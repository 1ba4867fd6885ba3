"""The step lines of each framework are read with the right numbers, units and line numbers."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rerail.cached_yaml import load_cached
from rerail.log_parsers.metrics import StepReader
from rerail.log_parsers.piece import Piece
from rerail.log_parsers.step_forms import PATH, numbers
from rerail.log_parsers.step_numbers import StepRow


def rows(text: str) -> list[StepRow]:
    reader = StepReader()
    reader.feed(Piece(text.encode()), 1)
    return reader.rows


MEGATRON = (
    " [2026-03-01 02:14:07] iteration      120/  500000 | consumed samples:       122880 | "
    "elapsed time per iteration (ms): 5412.5 | throughput per GPU (TFLOP/s/GPU): 401.3 | learning rate: 1.5E-04 | "
    "global batch size:  1024 | lm loss: 2.345600E+00 | loss scale: 4096.0 | grad norm: 0.871 | number of skipped iterations: 0 |"
)

FORMATS: list[tuple[str, str, dict[str, Any]]] = [
    ("megatron", MEGATRON, {"step": 120, "loss": 2.3456, "step_time": 5.4125, "grad_norm": 0.871, "loss_scale": 4096.0, "throughput": 401.3}),
    ("megatron nan", " iteration        7/ 100 | elapsed time per iteration (ms): 10.0 | lm loss: nan | grad norm: inf |", {"step": 7, "loss": math.nan, "grad_norm": math.inf, "step_time": 0.01}),
    ("srun label", "3: iteration 42/ 100 | lm loss: 1.5E+00 |", {"step": 42, "loss": 1.5, "rank": 3}),
    ("rank label", "[rank7]: step 42 loss 1.5", {"step": 42, "loss": 1.5, "rank": 7}),
    ("default label", "[default2]:step: 9 loss: 0.5", {"step": 9, "loss": 0.5, "rank": 2}),
    ("deepspeed engine", "steps: 30 loss: 2.2500 iter time (s): 1.250 samples/sec: 819.2", {"step": 30, "loss": 2.25, "step_time": 1.25, "throughput": 819.2}),
    ("deepspeed", "[INFO] [logging.py:96:log_dist] [Rank 0] step=50, skipped=0, lr=[0.0001], mom=[[0.9, 0.95]]", {"step": 50}),
    ("nemo", "Training epoch 0, iteration 12/99 | lr: 1e-5 | global_step: 12 | reduced_train_loss: 8.25 | train_step_timing in s: 3.125", {"step": 12, "loss": 8.25, "step_time": 3.125}),
    ("torchtitan", "[titan] step: 10  loss:  7.7500  grad_norm:  1.2500  memory: 60.1GiB  tps: 10,342  tflops: 402.1", {"step": 10, "loss": 7.75, "grad_norm": 1.25, "throughput": 10342.0}),
    ("hf trainer", "{'loss': 1.8125, 'grad_norm': 0.75, 'learning_rate': 2e-05, 'epoch': 0.4}", {"step": None, "loss": 1.8125, "grad_norm": 0.75, "epoch": 0.4}),
    ("fairseq2, whose time is that of the run", "fairseq2 - train Metrics (step 30) - Loss: 2.5 | Gradient Norm: 0.5 | Elapsed Time: 31s | Wall Time: 40s", {"step": 30, "loss": 2.5, "step_time": None, "grad_norm": 0.5}),
    ("clu", "I0110 12:00:00.123456 140 logging_writer.py:48] [100] learning_rate=0.001, loss=2.5, steps_per_second=3.2", {"step": 100, "loss": 2.5}),
    ("verl", "(TaskRunner pid=31) step:10 - actor/pg_loss:-0.01 - actor/grad_norm:0.5 - timing_s/gen:31.2 - timing_s/step:98.5 - perf/throughput:1203.5", {"step": 10, "step_time": 98.5, "throughput": 1203.5}),
    ("internevo", "INFO record_metrics.py:378 in record -- tflops=180.1 step=12 loss=2.5 tgs (tokens/gpu/second)=3801.5 lr=1e-05", {"step": 12, "loss": 2.5, "throughput": 3801.5}),
    ("ms-swift", "{'loss': 1.5, 'grad_norm': 1.0, 'epoch': 0.1, 'global_step/max_steps': '40/1000', 'train_speed(iter/s)': 0.125}", {"step": 40, "loss": 1.5, "throughput": 0.125}),
    ("litgpt", "Epoch 1 | iter 24 step 12 | loss train: 2.25, val: n/a | iter time: 512.5 ms (step)", {"step": 12, "loss": 2.25, "step_time": 0.5125}),
    ("olmo", "2025-05-31 18:45:31.100\tgpu-12:0\tolmo.train:967\tINFO\t[step=20800/23842,epoch=0]", {"step": 20800, "epoch": 0.0}),
    ("keras 2, one line an epoch", "469/469 - 3s - loss: 0.25 - accuracy: 0.92 - 3s/epoch - 5ms/step", {"step": None, "loss": 0.25}),
    ("keras 3, one line an epoch", "782/782 - 41s - 52ms/step - accuracy: 0.44 - loss: 1.5 - val_loss: 2.5", {"step": None, "loss": 1.5}),
    ("keras 3, slow", "12/12 - 41s - 3s/step - accuracy: 0.44 - loss: 1.5", {"step": None, "loss": 1.5}),
    ("hf nested", "{'train/loss': 1.25, 'train/epoch': 1}", {"step": None, "loss": 1.25}),
    ("mlperf", ':::MLLOG {"namespace": "", "time_ms": 1772331247000, "event_type": "POINT_IN_TIME", "key": "train_loss", "value": 6.5, "metadata": {"samples_count": 9216}}', {"step": 9216, "loss": 6.5}),
    ("mlperf rate", ':::MLLOG {"key": "tracked_stats", "value": {"throughput": 812.5}, "metadata": {"step": 40}}', {"step": 40, "throughput": 812.5}),
    ("mlperf rate whose step is a part of an epoch", ':::MLLOG {"key": "tracked_stats", "value": {"throughput": 812.5}, "metadata": {"step": 0.9994}}', {"step": None, "throughput": 812.5}),
    ("mlperf rate, a step with a point", ':::MLLOG {"key": "tracked_stats", "value": {"throughput": 812.5}, "metadata": {"step": 221184.0}}', {"step": 221184, "throughput": 812.5}),
    ("fairseq, whose step is the count of updates", "| epoch 002:   1000 / 1637 loss=4.690, ppl=1.00, wps=323091, ups=4.1, num_updates=2632, gnorm=22811.8, wall=628", {"step": 2632, "loss": 4.69, "grad_norm": 22811.8}),
    ("gnmt, batches of like sentences", "0: TRAIN [3][1710/1885]\tTime 0.147 (0.143)\tData 2.21e-04 (3.30e-04)\tTok/s 101119 (96561)\tLoss/tok 3.0447 (3.1421)\tLR 7.000e-04", {"step": 1710, "step_time": None}),
    ("mxnet", "2020-06-22 09:45:23,993 Node[0] Epoch[33] Batch [600-620]\tSpeed: 17994.92 samples/sec\taccuracy=0.767548", {"step": 620}),
    ("paddle", "Train Pass 35, batch 380, rtime 0.1223, time 0.1230, speed 26542.17", {"step": 380, "step_time": 0.123}),
    ("dllogger", "DLL 2026-03-01 02:14:07.000 - Iteration 55 | train loss : 3.5", {"step": 55, "loss": 3.5}),
    ("lightning", "Epoch 0:  12%|#2        | 61/500 [01:40<11:58,  1.64s/it, loss=2.5, v_num=3]", {"step": 61, "loss": 2.5, "step_time": 1.64}),
    ("tqdm", " 20%|##        | 100/500 [00:50<03:20,  2.00it/s]", {"step": 100, "step_time": 0.5}),
    ("detectron", "eta: 0:10:00  iter: 180  total_loss: 1.75  loss_cls: 0.5  time: 0.3125  data_time: 0.01", {"step": 180, "loss": 1.75, "step_time": 0.3125}),
    ("epoch bracket 2", "Epoch: [3]  [ 20/500]  eta: 0:01:00  lr: 0.1  loss: 4.5 (4.6)  time: 0.25", {"step": 20, "loss": 4.5, "step_time": 0.25, "epoch": 3.0}),
    ("epoch bracket 3", "INFO - Epoch [4/128][3740/3752]  lr: 0.004, iter_time: 1.31, loss: 1.8409", {"step": 3740, "loss": 1.8409}),
    ("by hand", "step 12 loss 3.5", {"step": 12, "loss": 3.5}),
    ("by hand, capital", "Step: 12, Loss: 3.5, step time: 0.5s", {"step": 12, "loss": 3.5, "step_time": 0.5}),
    ("by hand, thousands", "global step 1,200 | train loss 3.5", {"step": 1200, "loss": 3.5}),
    ("by hand, loss first", "loss: 3.5 at step 12", {"step": 12, "loss": 3.5}),
    ("by hand, milliseconds", "step=12 loss=3.5 step_time=250ms", {"step": 12, "loss": 3.5, "step_time": 0.25}),
    ("iter by hand", "iter 12: loss 3.5, time 250.00ms, mfu 40.1%", {"step": 12, "loss": 3.5}),
    ("batch by hand", "Batch 12/500 - loss: 3.5", {"step": 12, "loss": 3.5}),
    ("negative", "step 12 loss -3.5e-1", {"step": 12, "loss": -0.35}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "expected"), FORMATS, ids=[f[0] for f in FORMATS])
def test_a_step_line(name: str, text: str, expected: dict[str, Any]) -> None:
    (row,) = rows(f"a line before\n{text}\na line behind\n")
    assert row.line == 2
    for key, value in expected.items():
        assert getattr(row, key) == (
            pytest.approx(value, nan_ok=True) if value is not None else None
        ), key


@pytest.mark.parametrize("entry", load_cached(PATH)["forms"], ids=lambda entry: entry["program"])
def test_a_form_reads_its_example(entry: dict[str, Any]) -> None:
    assert entry["source"]
    (row,) = rows(entry["example"] + "\n")
    assert row.form == entry["form"]


@pytest.mark.parametrize("name", load_cached(PATH)["numbers"])
def test_the_name_of_a_number_is_known_where_its_examples_stand(name: str) -> None:
    examples = load_cached(PATH)["numbers"][name]["matches"]
    assert examples and all(numbers()[name].search(one.encode()) for one in examples)


@pytest.mark.parametrize(
    "form",
    [
        "Step: {:8d} | Loss: {:10.4f}",
        "step {:12d} loss {:.3f}",
        "[Iter {:7d}] loss={:.3f}",
        "Batch:{:9d} loss: {:.3f}",
    ],
)
def test_a_right_aligned_count_is_read_from_its_first_digit_on(form: str) -> None:
    steps = [1, 9, 10, 99, 100, 999, 1000, 99_999]
    found = rows("".join(form.format(step, 2.5) + "\n" for step in steps))
    assert [(row.step, row.loss) for row in found] == [(step, 2.5) for step in steps]


@pytest.mark.parametrize(
    "text",
    [
        "loss of signal on port 3",
        "step back and look at the plan",
        "saved checkpoint of step 12",
        "iteration over shards",
        "done in 3 s, ms/batch 711.05 loss 2.1",
        "[40/1200] loss 2.11 ms per step 740",
        "[rank3]: RuntimeError: step failed",
        "INFO stepwise 12 lossless compression",
        "100%|##########| 1/1 [00:02<00:00,  2.07s/it]",
        "",
    ],
)
def test_what_is_no_step_line(text: str) -> None:
    assert rows(text + "\n") == []


def test_a_validation_loss_is_no_training_loss() -> None:
    (row,) = rows("iteration 12/ 100 | validation loss: 2.5E+00 |\n")
    assert row.form == "evaluation"
    assert row.loss is None


@pytest.mark.parametrize("name", [f[0] for f in FORMATS if f[0] not in ("megatron nan",)])
def test_the_hundredth_line_of_a_layout_is_read_like_the_first(name: str) -> None:
    text, expected = next((f[1], f[2]) for f in FORMATS if f[0] == name)
    found = rows(f"{text}\n" * 200)
    assert [row.line for row in found] == list(range(1, 201))
    for key in expected:
        assert len({repr(getattr(row, key)) for row in found}) == 1, key


def test_numbers_that_vary_are_read_exactly_behind_the_learned_layout() -> None:
    text = "".join(
        f" iteration {i:8d}/ 9000 | elapsed time per iteration (ms): {1000 + i / 8} | "
        f"lm loss: {9.0 / i:.6E} | grad norm: {i % 7}.250 |\n"
        for i in range(1, 501)
    )
    found = rows(text)
    assert [row.step for row in found] == list(range(1, 501))
    for row in found:
        assert row.step is not None
        assert row.loss == pytest.approx(9.0 / row.step, rel=1e-6)
        assert row.step_time == pytest.approx(1.0 + row.step / 8000)
        assert row.grad_norm == row.step % 7 + 0.25


def test_an_odd_line_among_learned_ones_is_not_misread() -> None:
    lines = [f"iteration {i}/ 900 | lm loss: 2.5E+00 | grad norm: 1.0 |" for i in range(1, 301)]
    lines[249] = "iteration 250/ 900 | lm loss: nan | grad norm: inf |"
    lines[250] = "iteration 251/ 900 | lm loss: -2.5E+01 | grad norm: 7.0 |"
    lines[251] = "iteration 252/ 900 | grad norm: 3.0 | lm loss: 4.5E+00 |"
    found = rows("\n".join(lines) + "\n")
    assert math.isnan(found[249].loss or 0)
    assert found[249].grad_norm == math.inf
    assert (found[250].loss, found[250].grad_norm) == (-25.0, 7.0)
    assert (found[251].loss, found[251].grad_norm) == (4.5, 3.0)


@given(
    st.lists(
        st.tuples(st.integers(0, 10**6), st.floats(-1e6, 1e6), st.floats(0, 1e4)), max_size=120
    )
)
def test_what_was_printed_is_what_is_read(values: list[tuple[int, float, float]]) -> None:
    text = "".join(f"step {s} loss {x:.6e} grad_norm {g:.4f}\n" for s, x, g in values)
    found = rows(text)
    assert [(r.step, r.loss, r.grad_norm) for r in found] == [
        (s, float(f"{x:.6e}"), float(f"{g:.4f}")) for s, x, g in values
    ]


@given(st.binary(max_size=300))
def test_any_bytes_are_read(raw: bytes) -> None:
    StepReader().feed(Piece(raw), 1)


def test_a_long_log_of_many_ranks_is_sampled_but_read_to_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rerail.log_parsers.metrics.DENSE_ROWS", 400)
    reader, line = StepReader(), 1
    for number in range(120):
        text = "".join(
            f"[rank{rank}]: iteration {number * 4 + step}/ 999 | lm loss: 1.0 |\n"
            for step in range(4)
            for rank in range(16)
        )
        reader.feed(Piece(text.encode()), line)
        line += 64
    found = reader.finish()

    assert len(found) < 120 * 64 / 3
    assert [row.line for row in found] == sorted({row.line for row in found})
    assert {row.step for row in found if row.step is not None} >= set(range(24))
    assert [row.step for row in found[-64:]] == [s for s in range(476, 480) for _ in range(16)]
    assert found[-1].line == line - 1


def test_the_last_step_of_every_rank_is_read_where_each_writes_in_blocks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rerail.log_parsers.metrics._DENSE_OF_MANY", 800)
    reader, line = StepReader(), 1
    for number in range(160):
        rank = number % 16 if number < 152 else number % 8  # the others wrote their last before
        steps = range(number // 16 * 64, number // 16 * 64 + 64)
        text = "".join(f"[rank{rank}]: iteration {s}/ 999 | lm loss: 1.0 |\n" for s in steps)
        reader.feed(Piece(text.encode()), line)
        line += 64
    found = reader.finish()
    last = {row.rank: row.line for row in found}
    assert [row.line for row in found] == sorted({row.line for row in found})
    # All eight pieces that are kept are read: each shows another rank.
    assert [last[rank] for rank in range(8)] == [(153 + rank) * 64 for rank in range(8)]


def test_a_long_log_of_one_rank_is_read_in_full() -> None:
    reader = StepReader()
    text = "".join(f"iteration {step}/ 99999 | lm loss: 1.0 |\n" for step in range(70_000))
    for number in range(10):
        part = text[len(text) * number // 10 : len(text) * (number + 1) // 10]
        reader.feed(Piece(part.encode()), 1)
    assert len(reader.finish()) >= 69_980


def bar(step: int, seconds: float) -> str:
    return f"\r {step // 10:2d}%|{'#' * (step // 100):10s}| {step}/1000 [00:10<16:40,  {seconds:.2f}s/it]"


def test_frames_of_a_bar_without_any_newline_are_steps() -> None:
    found = rows("start\n3: " + "".join(bar(step, 2.0 + step / 100) for step in range(50)))
    assert [row.step for row in found] == list(range(50))
    assert {row.line for row in found} == {2}
    assert {row.rank for row in found} == {3}
    assert found[40].step_time == pytest.approx(2.4)


def test_of_a_bar_beside_step_lines_its_last_frame_counts() -> None:
    text = "".join(bar(step, 2.0) for step in range(9)) + "\n" + MEGATRON + "\n"
    found = rows(text + bar(9, 2.0) + bar(10, 2.0) + "\n")
    assert [(row.form, row.step, row.line) for row in found] == [
        ("bar", 8, 1),
        ("megatron", 120, 2),
        ("bar", 10, 3),
    ]


def test_a_bar_of_very_many_frames_is_thinned_but_ends_where_it_ends() -> None:
    found = rows(
        "".join(f"\r  1%|# | {step}/90000 [00:10<16:40,  2.0s/it]" for step in range(9_000))
    )
    assert 1_000 < len(found) <= 2_000
    assert found[-1].step == 8_999

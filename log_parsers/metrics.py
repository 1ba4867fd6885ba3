"""Step lines of training frameworks: step, loss, step time, gradient norm, at their log lines.

Knows Megatron-LM, DeepSpeed, NeMo, torchtitan, Hugging Face Trainer, MLPerf loggers, Lightning and
tqdm bars, timm/detectron style lines, and the plain `step N loss X` that people write themselves.
It reads numbers; whether they are good is for the detectors.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MAX_ROWS = 200_000
_NUMBER = rb"[-+]?(?:\d[\d,]*\.?\d*(?:[eE][-+]?\d+)?|\.\d+)"
_VALUE = rb"(?:" + _NUMBER + rb"|[-+]?(?:nan|inf)(?:inity)?)"

# Each form is led by a literal, so that a chunk without it costs one memchr-like search.
_FORMS: tuple[tuple[str, re.Pattern[bytes]], ...] = (
    ("megatron", re.compile(rb"iteration +(?P<step>\d+)/ *\d+ \|")),
    ("nemo", re.compile(rb"(?:global_step|trainer/global_step): (?P<step>\d+)(?=[^\n]{0,300}loss)")),
    ("dll", re.compile(rb"- Iteration (?P<step>\d+) \|")),
    ("deepspeed", re.compile(rb"\bstep=(?P<step>\d+), skipped=")),
    ("engine", re.compile(rb"steps: (?P<step>\d+) loss: ")),
    ("step", re.compile(rb"\b(?:[Gg]lobal[ _])?[Ss]tep\b[ :=#\[]{0,4}(?P<step>\d[\d,]*)(?=[^\n]{0,400}(?:[Ll]oss|sec/step|LOSS|ce \d))")),
    ("loss_step", re.compile(rb"[Ll]oss[:= ]+[^\n]{1,200}\bstep[:= ]+(?P<step>\d[\d,]*)")),
    ("iter", re.compile(rb"(?<![\w-])(?:[Ii]ter(?:ation)?|[Ii]tr|it|[Bb]atch)[ :#=\[]{1,4}(?P<step>\d+)(?=[^\n]{0,400}(?:[Ll]oss|LOSS))")),
    ("epoch_bracket", re.compile(rb"Epoch:? ?\[?\d+\]?(?:/\d+)? +\[ *(?P<step>\d+)/\d+(?: \(\d+%\))?\](?=[^\n]{0,300}[Ll]oss)")),
    ("hf", re.compile(rb"\{'loss': (?P<loss>" + _VALUE + rb")")),
    ("hf_eval", re.compile(rb"\{'train/(?:batch_)?loss': (?P<loss>" + _VALUE + rb")")),
    ("mllog", re.compile(rb'"key": "(?:train_loss|loss)", "value": (?P<loss>' + _VALUE + rb")")),
    ("mllog_rate", re.compile(rb'"key": "tracked_stats", "value": \{"throughput": (?P<tps>[\d.eE+-]+)')),
    ("tqdm", re.compile(rb"\| *(?P<step>\d+)/\d+ \[[\d:]+<[^,\]\n]{1,12}, +(?P<rate>[\d.]+)(?P<unit>s/it|it/s)")),
)
_LOSS = re.compile(
    rb"(?:lm[ _]loss|reduced_train_loss|train[_/]loss(?:_step)?|(?<![\w-])[Ll]oss(?:_?avg)?|LOSS|(?<=, )ce)"
    rb"(?:\s*\([^)]{1,12}\))?['\"]?\s*[:= ]\s*\(?(" + _VALUE + rb")",
    re.IGNORECASE,
)
_TIME = re.compile(
    rb"(?:elapsed time per iteration|iteration_time|train_step_timing|step[_ ]time|iter(?:ation)?[ _]time|time per (?:step|iteration)|batch[_ ]time)"
    rb"\s*(?:in |\()?(?P<unit>ms|s)?\)?\s*[:=]?\s*(?P<value>" + _NUMBER + rb")\s*(?P<after>ms|s)?",
    re.IGNORECASE,
)
_SEC_STEP = re.compile(rb"(?P<value>[\d.]+) ?(?:sec/step|s/step|s/it\b)")
_SEC_FIELD = re.compile(rb"(?:\(sec: |, time = |\btime: )(?P<value>[\d.]+)")
_GRAD = re.compile(rb"(?:grad(?:ient)?[ _]norm|gnorm)['\"]?\s*[:= ]\s*(" + _VALUE + rb")", re.IGNORECASE)
_SCALE = re.compile(rb"loss[ _]scale['\"]?\s*[:= ]\s*(" + _NUMBER + rb")", re.IGNORECASE)
_TPS = re.compile(rb"(?:\btps|tokens/s(?:ec)?|samples/s(?:ec(?:ond)?)?|imgs/s|throughput(?: per GPU \(TFLOP/s/GPU\))?)['\"]?\s*[:= ]\s*(" + _NUMBER + rb")", re.IGNORECASE)
_SAMPLES = re.compile(rb'"(?:step_num|samples_count|iteration|step|iter)": ?(\d+)')
_EPOCH = re.compile(rb"(?:'epoch': |epoch[ :=\[]{1,3})([\d.]+)", re.IGNORECASE)
_RANK = re.compile(rb"^\s*(?:\[(?:rank|default) ?(\d+)\]|(\d+): |\[\d+,(\d+)\]<)", re.IGNORECASE)


@dataclass(slots=True)
class StepRow:
    """One step line. `step` may be None where the framework prints none; times are seconds."""

    line: int
    form: str
    step: int | None = None
    loss: float | None = None
    step_time: float | None = None
    grad_norm: float | None = None
    loss_scale: float | None = None
    throughput: float | None = None
    epoch: float | None = None
    rank: int | None = None


class StepReader:
    """Collects the step rows of one file, chunk by chunk."""

    def __init__(self) -> None:
        self.rows: list[StepRow] = []
        self.count = 0
        self._seen: set[str] = set()
        self._bytes = 0

    def feed(self, chunk: bytes, first_line: int) -> None:
        """Read one chunk of whole lines whose first line has the number `first_line`."""
        # Behind the first megabytes a file shows no new format; skipping the others saves most.
        forms = _FORMS if self._bytes < 8 << 20 else [f for f in _FORMS if f[0] in self._seen]
        self._bytes += len(chunk)
        found: dict[int, tuple[str, re.Match[bytes]]] = {}
        for name, pattern in forms:
            for match in pattern.finditer(chunk):
                start = chunk.rfind(b"\n", 0, match.start()) + 1
                if start not in found:
                    found[start] = (name, match)
        at, line = 0, first_line
        for start in sorted(found):
            line += chunk.count(b"\n", at, start)
            at = start
            name, match = found[start]
            self._seen.add(name)
            self.count += 1
            if len(self.rows) < MAX_ROWS:
                end = chunk.find(b"\n", match.end())
                text = chunk[start : end if end >= 0 else len(chunk)][:4000]
                self.rows.append(_row(line, name, match, text))


def _row(line: int, form: str, match: re.Match[bytes], text: bytes) -> StepRow:
    row = StepRow(line, form)
    groups = match.groupdict()
    if groups.get("step"):
        row.step = int(groups["step"].replace(b",", b""))
    if groups.get("loss") is not None:
        row.loss = _float(groups["loss"])
    else:
        row.loss = _first(_LOSS, text)
    row.grad_norm = _first(_GRAD, text)
    if b"valid" in text and re.search(rb"valid(?:ation)? loss", text):
        row.form, row.loss = "evaluation", None
    row.loss_scale = _first(_SCALE, text)
    row.throughput = _first(_TPS, text)
    row.epoch = _first(_EPOCH, text)
    row.step_time = _step_time(form, groups, text)
    if groups.get("tps") is not None:
        row.throughput = _float(groups["tps"])
    if form in ("mllog", "mllog_rate"):
        samples = _SAMPLES.search(text)
        row.step = int(samples[1]) if samples else None
    label = _RANK.match(text)
    if label:
        row.rank = int(label[1] or label[2] or label[3])
    return row


def _step_time(form: str, groups: dict[str, bytes | None], text: bytes) -> float | None:
    if form == "tqdm":
        rate = _float(groups["rate"] or b"0")
        if not rate:
            return None
        return rate if groups["unit"] == b"s/it" else 1.0 / rate
    match = _TIME.search(text)
    if match:
        value = _float(match["value"])
        unit = (match["unit"] or match["after"] or b"s").lower()
        return None if value is None else value / 1000.0 if unit == b"ms" else value
    match = _SEC_STEP.search(text) or _SEC_FIELD.search(text)
    return _float(match["value"]) if match else None


def _first(pattern: re.Pattern[bytes], text: bytes) -> float | None:
    match = pattern.search(text)
    return _float(match[1]) if match else None


def _float(raw: bytes) -> float | None:
    try:
        return float(raw.replace(b",", b""))
    except ValueError:
        return None

"""Rewrites a case so that a rule fitted to its text would fail: other names, other company.

Every rewrite keeps what happened and which line shows it: hosts, ranks, numbers and dates change
consistently, a label is put in front of every line, or a thousand healthy lines are put around.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import replace

from rerail.evals.cases.case_file import LabelledCase

_HEX = re.compile(r"\b0x[0-9a-f]{6,}\b")
_PIDS = re.compile(r"\bpid[=: ]+(\d{3,8})|\(pid: (\d{3,8})\)|\bPID (\d{3,8})|process (\d{3,8})")
_PATHS = re.compile(
    r"/(?:opt|app|workspace|home|code|scratch|share|data|usr/local)/[A-Za-z0-9_.-]+"
)
_CPP = re.compile(r"\b(\w+\.(?:cpp|cc|cu|c|hpp)):(\d{2,4})\b")
_PY = re.compile(r"(File \"[^\"]+\", line )(\d+)")
_IP = re.compile(r"\b(10|172|192)\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})\b")
_COLLECTORS = ("[pod/llm-train-0/pytorch] ", "[pod] ", "trainer-1  | ", "llm-train-0 pytorch ")
_TELLS_TIME = re.compile(r"\d\d:\d\d:\d\d")
# Commands, headings and lines of machines do not come through the collector of a job's output.
_PASTED = re.compile(
    r"^(?:\S*[$#%] |={2,}|-{3,} ?\w|#{2,}|[<>]{2,} |\+ |==>|\S+@\S+[:~]|Name: |NAME |.{0,8}\[ *\d+\.\d+\])"
    r"|^.{0,80}(?:kernel|NVRM|systemd|kubelet|slurmd\[)",
    re.MULTILINE,
)
_RANK = re.compile(r"\[rank(\d+)\]")
_RANK_IN_FRONT = re.compile(r"^\[rank(\d+)\]: ", re.MULTILINE)


def other_hosts(case: LabelledCase, rng: random.Random) -> LabelledCase:
    """Rename the culprit node everywhere, and shift every private address."""
    log = case.log
    node = case.node
    if node:
        fresh = f"{rng.choice(['zx', 'kraken-gpu', 'tz-h100', 'ap9'])}-{rng.randrange(100, 999)}"
        log = re.sub(rf"(?:(?<![\w-])|(?<=slurmstepd-)){re.escape(node)}(?![\w-])", fresh, log)
        node = fresh
    shift = rng.randrange(1, 200)
    log = _IP.sub(lambda m: f"{m[1]}.{m[2]}.{m[3]}.{(int(m[4]) + shift) % 250 + 1}", log)
    return replace(case, log=log, node=node)


def other_numbers(case: LabelledCase, rng: random.Random) -> LabelledCase:
    """Change addresses, process ids, source line numbers and paths, each the same way everywhere."""
    pids: dict[str, str] = {}

    def pid(match: re.Match[str]) -> str:
        old = next(g for g in match.groups() if g)
        new = pids.setdefault(old, str(rng.randrange(10_000, 4_000_000)))
        return match[0].replace(old, new)

    log = _PIDS.sub(pid, case.log)
    for old, new in pids.items():
        log = re.sub(rf"(?<=[\s:\[]){old}(?=[\]\s:,)])", new, log)
    log = _HEX.sub(lambda m: f"0x{rng.getrandbits(44):x}", log)
    log = _CPP.sub(lambda m: f"{m[1]}:{int(m[2]) + rng.randrange(1, 40)}", log)
    log = _PY.sub(lambda m: f"{m[1]}{int(m[2]) + rng.randrange(1, 90)}", log)
    names: dict[str, str] = {}
    log = _PATHS.sub(lambda m: names.setdefault(m[0], f"{m[0]}{rng.randrange(2, 9)}"), log)
    return replace(case, log=log)


def other_ranks(case: LabelledCase, rng: random.Random) -> LabelledCase:
    """Shift every `[rankN]` label and the rank that a case asks for; only where nothing else names it."""
    if case.rank is None or not _RANK.search(case.log):
        return case
    rest = _RANK.sub("", case.log)
    if re.search(r"(?i)\brank[ :=]*\d|^\s*\d+: |\[1,\d|local_rank|cuda:\d|GPU ?\d", rest, re.M):
        return case
    shift = 8 * rng.randrange(1, 60)
    log = _RANK.sub(lambda m: f"[rank{int(m[1]) + shift}]", case.log)
    return replace(case, log=log, rank=case.rank + shift)


def labelled(case: LabelledCase, rng: random.Random) -> LabelledCase:
    """Put the label of a log collector in front of every line of what one job printed, and of nothing that was pasted."""
    label = rng.choice(_COLLECTORS)
    if not ("time" in case.category or _TELLS_TIME.search(case.log)):
        label = rng.choice([label, "2026-03-01T00:00:00.000000000Z stdout F "])
    if _PASTED.search(case.log):
        label = "[pod] "
    return replace(case, log="\n".join(label + line for line in case.log.split("\n")))


def among_healthy(case: LabelledCase, rng: random.Random) -> LabelledCase:
    """Put a thousand healthy lines before the case."""
    steps = case.log
    if re.search(r"(?i)iter|step|loss|epoch", steps):
        lines = [
            f"DEBUG cache lookup {rng.randrange(1 << 30):08x} hit in {rng.random():.4f} s"
            for _ in range(1000)
        ]
    else:
        lines = [f"step {i} loss {3.0 - i * 0.0004 + rng.random() * 0.01:.4f}" for i in range(1000)]
    moved = frozenset(line + len(lines) for line in case.lines)
    return replace(case, log="\n".join([*lines, case.log]), lines=moved)


def crlf(case: LabelledCase, rng: random.Random) -> LabelledCase:
    """End every line as Windows tools do."""
    return replace(case, log=case.log.replace("\n", "\r\n"))


def coloured(case: LabelledCase, rng: random.Random) -> LabelledCase:
    """Wrap every line in colour codes."""
    return replace(
        case, log="\n".join(f"\x1b[3{rng.randrange(1, 7)}m{x}\x1b[0m" for x in case.log.split("\n"))
    )


def another_launcher(case: LabelledCase, rng: random.Random) -> LabelledCase:
    """Put the label of another launcher in the place of torch's `[rankN]: ` in front of a line."""
    other = rng.choice(["[1,{}]<stderr>:", "{}: ", "[{}]<stderr>:", "(Rank {}): ", "task-{} | "])
    log = _RANK_IN_FRONT.sub(lambda m: other.format(m[1]), case.log)
    return replace(case, log=log)


def doubled(case: LabelledCase, rng: random.Random) -> LabelledCase:
    """Say every line twice, as two handlers of one logger do."""
    log = "\n".join(line for line in case.log.split("\n") for _ in range(2))
    return replace(
        case, log=log, lines=frozenset(n for line in case.lines for n in (2 * line, 2 * line + 1))
    )


def file_per_rank(case: LabelledCase, rng: random.Random) -> LabelledCase:
    """Put what each rank prints into a file of its own, as torchrun's `--redirects` does, the files in any order."""
    files: dict[str, list[int]] = {}
    rows = case.log.split("\n")
    for number, row in enumerate(rows):
        label = _RANK_IN_FRONT.match(row)
        files.setdefault(f"rank_{label[1]}.log" if label else "job.log", []).append(number)
    if len(files) < 3 or re.search(r"^\s*(?:File |Traceback)", case.log, re.M):
        return case  # a traceback may be said by several at once
    names = sorted(files)
    rng.shuffle(names)
    order = [number for name in names for number in files[name]]
    return replace(
        case,
        log="".join(rows[number] + "\n" for number in order),
        lines=frozenset(order.index(line) for line in case.lines),
        parts=tuple((name, len(files[name])) for name in names),
    )


REWRITES: dict[str, Callable[[LabelledCase, random.Random], LabelledCase]] = {
    "other hosts": other_hosts,
    "other numbers": other_numbers,
    "other ranks": other_ranks,
    "collector label": labelled,
    "among 1000 healthy lines": among_healthy,
    "CRLF": crlf,
    "colour codes": coloured,
    "another launcher's label": another_launcher,
    "every line twice": doubled,
    "a file per rank": file_per_rank,
}


def paraphrase(cases: list[LabelledCase], name: str, seed: int) -> list[LabelledCase]:
    """Return the cases rewritten by one of `REWRITES`, the same way for the same seed."""
    rng = random.Random(f"{name} {seed}")
    # A case of several files is left alone: rewriting moves lines from file to file.
    return [case if case.parts else REWRITES[name](case, rng) for case in cases]

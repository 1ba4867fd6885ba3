"""`rerail eval ablation FILE...`: which cases notice when a part of the reasoning is switched off."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rerail.assistant.pipeline import diagnose_collection, survey_texts
from rerail.evals.ablation.switches import Switch, noted, switches
from rerail.evals.cases.case_file import LabelledCase, load_cases
from rerail.evals.cases.score import QUESTIONS, score
from rerail.log_parsers.collect import assemble
from rerail.log_parsers.survey import FileSurvey

_SHOWN = 6
Answers = dict[str, bool | None]


class Bench:
    """Cases that were read once; they are judged anew under each part that had a say in them."""

    def __init__(self, cases: Sequence[LabelledCase]) -> None:
        self.cases = list(cases)
        self._surveys: list[list[FileSurvey]] = []
        self._said: list[set[str]] = []
        self.base: list[Answers] = []
        for case in self.cases:
            with noted() as said:
                self._surveys.append(survey_texts(case.files()))
                self.base.append(_answers(case, self._surveys[-1]))
            self._said.append(said)

    def noticed(self, switch: Switch) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
        """Return the cases that become wrong, and those that become right, with what changes in each."""
        lost: dict[str, list[str]] = {}
        gained: dict[str, list[str]] = {}
        concerned = [i for i, said in enumerate(self._said) if switch.always or str(switch) in said]
        with switch.off():
            for index in concerned:
                case = self.cases[index]
                surveys = survey_texts(case.files()) if switch.reads else self._surveys[index]
                for question, answer in _answers(case, surveys).items():
                    before = self.base[index][question]
                    if before and answer is False:
                        lost.setdefault(case.id, []).append(question)
                    elif before is False and answer:
                        gained.setdefault(case.id, []).append(question)
        return lost, gained


def _answers(case: LabelledCase, surveys: Sequence[FileSurvey]) -> Answers:
    diagnosis = diagnose_collection(assemble(surveys)).diagnosis
    found = score(case, diagnosis, 0.0, 0)
    answers: Answers = {question: getattr(found, question) for question in QUESTIONS}
    answers["calm"] = None if found.false_alarm is None else not found.false_alarm
    answers["not established wrong"] = not found.established_wrong
    # Where the label names no place, the verdict may name one, and a part may be there to leave it out.
    suspects = diagnosis.suspects
    answers["no other rank"] = set(suspects.ranks) <= {case.rank}
    answers["no other node"] = set(suspects.nodes) <= {case.node}
    return answers


def ablation_command(files: Sequence[Path], *, only: str, tests: bool, json_output: bool) -> int:
    """Switch off each part (or those whose kind or name holds `only`) and print which cases notice."""
    cases = [case for file in files for case in load_cases(file)]
    if tests:
        from rerail.evals.ablation.from_tests import cases_of_tests

        cases += cases_of_tests(Path.cwd())
    bench = Bench(cases)
    chosen = [switch for switch in switches() if only in str(switch)]
    rows = []
    for switch in chosen:
        lost, gained = bench.noticed(switch)
        rows.append({"kind": switch.kind, "name": switch.name, "lost": lost, "gained": gained})
        if not json_output:
            sys.stdout.write(_line(switch, lost, gained))
            sys.stdout.flush()
    if json_output:
        sys.stdout.write(json.dumps(rows, indent=1) + "\n")
        return 0
    silent = Counter(row["kind"] for row in rows if not row["lost"])
    kinds = Counter(row["kind"] for row in rows)
    sys.stdout.write(f"\n{len(bench.cases)} cases; parts that no case notices: ")
    sys.stdout.write(", ".join(f"{silent[k]} of {n} {k}s" for k, n in kinds.items()) + "\n")
    return 0


def _line(switch: Switch, lost: dict[str, list[str]], gained: dict[str, list[str]]) -> str:
    def named(cases: dict[str, list[str]]) -> str:
        shown = [f"{case} ({', '.join(what)})" for case, what in list(cases.items())[:_SHOWN]]
        return "; ".join(shown) + (f"; {len(cases) - _SHOWN} more" if len(cases) > _SHOWN else "")

    text = f"{switch!s:<44} {len(lost):4} lost  {named(lost) or 'nobody notices'}\n"
    return text + (f"{'':44} {len(gained):4} won   {named(gained)}\n" if gained else "")

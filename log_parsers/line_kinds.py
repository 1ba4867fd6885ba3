"""The kept lines of a job by their kind: lines that differ in digits alone are one kind, in whatever file they stand.

Hundreds of rank files print the same lines. What is looked for in all of them is looked for once in each kind, and
then in the lines of those kinds alone that may hold it.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterator

from rerail.log_parsers.digit_blind import zero_image
from rerail.log_parsers.text import MAX_LINE, ZERO, clean
from rerail.log_parsers.view import LogView

_MOST = 200_000  # kinds that are told apart; a line of any further one is always looked at
UNKNOWN = 0
"""The kind of lines that are not told apart."""


class LineKinds:
    """Numbers the kinds of a job's lines, and remembers of each what a question found in it."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}
        self._texts: list[bytes] = [b""]
        self._of: dict[LogView, array[int]] = {}
        self._answers: dict[object, bytearray] = {}

    def of(self, view: LogView) -> array[int]:
        """Return the kind of each kept line of a file, in the order of the file."""
        found = self._of.get(view)
        if found is None:
            kept = view.survey.kept
            found = array(
                "i", [self._number(kept[number].translate(ZERO)) for number in view.numbers]
            )
            self._of[view] = found
        return found

    def _number(self, zeroed: bytes) -> int:
        number = self._numbers.get(zeroed)
        if number is None:
            if len(self._texts) > _MOST or len(zeroed) > MAX_LINE:
                return UNKNOWN
            number = self._numbers[zeroed] = len(self._texts)
            self._texts.append(zeroed)
        return number

    def answers(self, question: object, asked: Callable[[bytes], bool]) -> bytearray:
        """Return for each kind whether its lines may hold what is asked for; `asked` gets their text, digits zeroed.

        A kind of which nothing is known may hold anything.
        """
        found = self._answers.setdefault(question, bytearray(b"\x01"))
        found.extend(asked(text) for text in self._texts[len(found) :])
        return found

    def that_may(
        self, view: LogView, question: object, asked: Callable[[bytes], bool]
    ) -> Iterator[int]:
        """Yield the numbers of the kept lines of a file that may hold what is asked for."""
        kinds = self.of(view)
        answers = self.answers(question, asked)
        for number, kind in zip(view.numbers, kinds, strict=True):
            if answers[kind]:
                yield number

    def with_pattern(self, view: LogView, pattern: re.Pattern[bytes]) -> Iterator[int]:
        """Yield the numbers of the kept lines of a file that may match a pattern, as they are or made readable."""
        return self.that_may(view, pattern, _may_match(pattern))


def _may_match(pattern: re.Pattern[bytes]) -> Callable[[bytes], bool]:
    image: list[re.Pattern[bytes] | None] = []

    def asked(zeroed: bytes) -> bool:
        if (
            not image
        ):  # made when a kind is first seen: most questions of a long job find all kinds answered
            image.append(zero_image(pattern.pattern))
        told = image[0]
        if told is None or told.search(zeroed):
            return True
        # What hides in escapes and frames is found where the line is read.
        return (b"\x1b" in zeroed or b"\r" in zeroed) and bool(
            told.search(clean(zeroed).encode("utf-8", "replace"))
        )

    return asked

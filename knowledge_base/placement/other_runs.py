"""Lines that speak of a plan, a spare, another pool of machines or an earlier run: they place nobody of this one."""

from __future__ import annotations

from rerail.knowledge_base.phrases import says

_ZERO = str.maketrans("123456789", "000000000")
_MOST = 20_000


class OtherRuns:
    """Tells such lines; of lines that differ in digits alone one is looked at."""

    def __init__(self) -> None:
        self._known: dict[str, bool] = {}

    def told_by(self, text: str) -> bool:
        """Tell whether a line speaks of anything but this run."""
        alike = text.translate(_ZERO)
        known = self._known.get(alike)
        if known is None:
            known = says("not-of-this-run", text)
            if len(self._known) < _MOST:
                self._known[alike] = known
        return known

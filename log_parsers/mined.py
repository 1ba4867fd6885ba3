"""The templates of one file, whether or not the reader counted them."""

from __future__ import annotations

from itertools import groupby

from rerail.log_parsers.skeletons import SkeletonMiner
from rerail.log_parsers.view import LogView


def miner_of(view: LogView) -> SkeletonMiner:
    """Return the templates of one file, mined here where the reader did not."""
    if view.survey.miner is not None:
        return view.survey.miner
    miner = SkeletonMiner()
    # Lines that follow each other are mined together: a call for each costs more than the mining.
    for _, run in groupby(enumerate(view.numbers), lambda item: item[1] - item[0]):
        numbers = [number for _, number in run]
        text = b"\n".join(view.survey.kept[number] for number in numbers)
        miner.feed(text + b"\n", numbers[0])
    return miner

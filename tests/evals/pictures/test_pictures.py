"""Every picture of the documents is one that the script makes, and none is made for nobody."""

import re
from pathlib import Path

from rerail.evals.pictures.shown import PICTURES

ROOT = Path(__file__).parents[3]


def test_the_pictures_are_those_that_the_script_makes():
    assert {path.stem for path in (ROOT / "docs" / "images").iterdir()} == set(PICTURES)


def test_the_documents_show_each_picture():
    texts = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    shown = {name for text in texts for name in re.findall(r"images/([\w-]+)\.png", text.read_text())}  # fmt: skip
    assert shown == set(PICTURES)

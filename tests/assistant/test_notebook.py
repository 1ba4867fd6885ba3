"""The notebook of the docs runs as it is kept, and what is kept beside its cells is what comes out."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

KEPT = Path(__file__).parents[2] / "docs" / "examples" / "notebook" / "diagnose.ipynb"


def told(notebook):
    return [
        output["data"]["text/plain"]
        for cell in notebook.cells
        for output in cell.get("outputs", ())
        if "data" in output
    ]


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")  # of Jupyter
def test_the_kept_notebook_comes_out_again():
    kept = nbformat.read(KEPT, as_version=4)
    again = nbformat.read(KEPT, as_version=4)
    client = NotebookClient(
        again, timeout=60, kernel_name="python3", resources={"metadata": {"path": str(KEPT.parent)}}
    )
    client.execute()
    assert told(again) == told(kept) and len(told(kept)) == 5
    assert told(kept)[0].startswith("Rank 2 did not come to a collective")
    assert "suspect': [2]" in told(kept)[-1]

"""`python -m rerail.evals.pictures docs/images`: every picture of the documents anew."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from rerail.errors import RerailError
from rerail.evals.pictures.shown import PICTURES, take
from rerail.evals.pictures.site import served

_REPOSITORY = Path(__file__).resolve().parents[2]


def main() -> int:
    """Build the site in a folder that goes again, take the pictures, and return the exit code."""
    parser = argparse.ArgumentParser(prog="rerail.evals.pictures")
    parser.add_argument("folder", type=Path, help="where the pictures are put: docs/images")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"among {', '.join(PICTURES)}")
    given = parser.parse_args()
    unknown = [name for name in given.names if name not in PICTURES]
    if unknown:
        parser.error(f"no picture is called {unknown[0]!r}; there are {', '.join(PICTURES)}")
    given.folder.mkdir(parents=True, exist_ok=True)
    try:
        with (
            tempfile.TemporaryDirectory(prefix="rerail-pictures-") as scratch,
            served(_REPOSITORY / "tests" / "data" / "faultlab", Path(scratch)) as site,
        ):
            for name in given.names or PICTURES:
                print(take(site, name, given.folder), flush=True)
    except RerailError as error:
        print(f"{error.message} (try: {error.hint})", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

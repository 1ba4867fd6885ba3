"""Token shards: JSON lines that are read as training goes on."""
# mypy: ignore-errors

import json
import logging
import time
from pathlib import Path

log = logging.getLogger("data")


def open_shard(path, retries=8):
    """Open a shard; a shared file system may need a moment."""
    for attempt in range(1, retries + 1):
        try:
            return open(path)
        except OSError as error:
            if attempt == retries:
                raise
            log.warning(
                "cannot open shard: %s (attempt %d of %d), retrying in 1 s", error, attempt, retries
            )
            time.sleep(1)


def collate(sample, width=32):
    """Return a padded row of tokens and its weight."""
    tokens = sample["tokens"] * sample.get("repeat", 1)
    return (tokens + [0] * width)[:width], float(sample.get("weight", 1.0))


class Shard:
    """The shard of one rank."""

    def __init__(self, folder, rank, skip_bad=False):
        self.path = Path(folder) / f"shard_{rank:04d}.jsonl"
        self.lines = open_shard(self.path)
        self.skip_bad = skip_bad
        self.at = 0

    def next_batch(self):
        """Return the next sample."""
        while True:
            line = self.lines.readline()
            self.at += 1
            try:
                return collate(json.loads(line))
            except (KeyError, ValueError):
                if not self.skip_bad:
                    raise
                log.exception(
                    "sample %d of %s cannot be used, skipping it", self.at, self.path.name
                )


def arguments(parser, rank):
    """Parse the command line and, behind it, what the site set for one rank."""
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--micro-batch", type=int, default=4)
    parser.add_argument("--lr", type=float, default=1e-2)
    parser.add_argument("--skip-bad-samples", action="store_true")
    parser.add_argument("--local_rank", "--local-rank", type=int, default=0)
    import sys

    words = sys.argv[1:]
    own = Path("overrides") / f"rank_{rank}.args"
    if own.exists():
        words += own.read_text().split()
    return parser.parse_args(words)

"""The program of `train_torch.py`, with absl's logging into a file for each rank."""
# mypy: ignore-errors

import os
import sys

import train_torch
from absl import app, logging


def main(words):
    """Train with absl's form, and the rank in the name of the file."""
    name = f"train_rank{os.environ['RANK']}"
    logging.get_absl_handler().use_absl_log_file(name, os.environ["LOG_DIR"])
    logging.set_verbosity(logging.INFO)
    train_torch.main()


if __name__ == "__main__":
    logging.use_absl_handler()
    app.run(main, argv=sys.argv[:1])

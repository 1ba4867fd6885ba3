"""The program of `train_torch.py`, with its log and its tracebacks by rich."""
# mypy: ignore-errors

import logging

import rich.traceback
import train_torch
from rich.console import Console
from rich.logging import RichHandler


def main():
    """Train with rich's columns, which are folded at 80 signs where no terminal is."""
    rich.traceback.install()
    handler = RichHandler(console=Console(stderr=True), rich_tracebacks=True)
    logging.basicConfig(level=logging.INFO, format="%(message)s", handlers=[handler])
    train_torch.main()


if __name__ == "__main__":
    main()

"""The program of `train_torch.py`, with its log as JSON of python-json-logger."""
# mypy: ignore-errors

import logging
import os
import socket

import train_torch
from pythonjsonlogger.json import JsonFormatter


def main():
    """Write all records as JSON, with the rank and the node in each."""
    handler = logging.StreamHandler()
    handler.setFormatter(
        JsonFormatter(
            "{asctime}{levelname}{name}{message}",
            style="{",
            rename_fields={"asctime": "ts", "levelname": "severity", "name": "logger"},
            static_fields={"rank": int(os.environ["RANK"]), "node": socket.gethostname()},
        )
    )
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    try:
        train_torch.main()
    except Exception:
        logging.getLogger("train").exception("training failed")
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()

"""The program of `train_torch.py`, with its log by structlog's console renderer: keys at the end of each line."""
# mypy: ignore-errors

import logging
import os
import socket

import structlog
import train_torch

PROCESSORS = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_logger_name,
    structlog.stdlib.add_log_level,
    structlog.processors.TimeStamper(fmt="iso"),
]


def main():
    """Send all records of the standard library through structlog, with rank and host behind each."""
    handler = logging.StreamHandler()
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=PROCESSORS,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.dev.ConsoleRenderer(colors=True),
            ],
        )
    )
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    structlog.contextvars.bind_contextvars(rank=int(os.environ["RANK"]), host=socket.gethostname())
    try:
        train_torch.main()
    except Exception:
        logging.getLogger("train").exception("training failed")
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()

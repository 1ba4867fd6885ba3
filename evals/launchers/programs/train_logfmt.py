"""The program of `train_torch.py`, with its log as logfmt of structlog."""
# mypy: ignore-errors

import logging
import os

import structlog
import train_torch

PROCESSORS = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_logger_name,
    structlog.stdlib.add_log_level,
    structlog.processors.TimeStamper(fmt="iso"),
]


def main():
    """Send all records of the standard library through structlog, with the rank in each."""
    handler = logging.StreamHandler()
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=PROCESSORS,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                structlog.processors.LogfmtRenderer(
                    key_order=["timestamp", "level", "rank", "logger", "event"]
                ),
            ],
        )
    )
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    structlog.contextvars.bind_contextvars(rank=int(os.environ["RANK"]))
    try:
        train_torch.main()
    except Exception:
        logging.getLogger("train").exception("training failed")
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()

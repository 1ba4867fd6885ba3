"""The program of `train_torch.py`, with its log by loguru."""
# mypy: ignore-errors

import logging
import os
import sys

import train_torch
from loguru import logger


class Intercept(logging.Handler):
    """Hands records of the standard library to loguru, as its documentation shows."""

    def emit(self, record):
        """Hand one record over."""
        frame, depth = logging.currentframe(), 0
        while frame and (depth == 0 or frame.f_code.co_filename == logging.__file__):
            frame, depth = frame.f_back, depth + 1
        logger.opt(depth=depth, exception=record.exc_info).log(
            record.levelname, record.getMessage()
        )


@logger.catch(reraise=False, onerror=lambda error: sys.exit(1))
def main():
    """Train with loguru's own form, and the ranks in it."""
    logger.remove()
    logger.configure(extra={"rank": int(os.environ["RANK"])})
    logger.add(
        sys.stderr,
        format="{time:YYYY-MM-DD HH:mm:ss.SSS} | {level: <8} | r{extra[rank]} | {name}:{function}:{line} - {message}",
    )
    logging.basicConfig(handlers=[Intercept()], level=logging.INFO)
    train_torch.main()


if __name__ == "__main__":
    main()

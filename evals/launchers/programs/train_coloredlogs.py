"""The program of `train_torch.py`, with its log by coloredlogs: time, host, name and process."""
# mypy: ignore-errors

import coloredlogs
import train_torch


def main():
    """Train with coloredlogs' own form."""
    coloredlogs.install(level="INFO")
    train_torch.main()


if __name__ == "__main__":
    main()

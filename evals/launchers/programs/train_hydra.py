"""The program of `train_torch.py` as an application of Hydra, with the log that Hydra sets up."""
# mypy: ignore-errors

import os
import sys

import hydra
import train_torch

ARGUMENTS = sys.argv[1:]


@hydra.main(version_base=None, config_path=None)
def main(_config):
    """Train with the arguments of the command line, which are no overrides."""
    sys.argv[1:] = ARGUMENTS
    train_torch.main()


if __name__ == "__main__":
    sys.argv[1:] = [f"hydra.run.dir={os.environ['HYDRA_DIR']}/rank_{os.environ['RANK']}"]
    main()

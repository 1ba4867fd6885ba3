"""The program of `train_torch.py` as tasks of Dask, a rank on each worker."""
# mypy: ignore-errors

import os
import sys

from dask.distributed import Client


def train(rank, world, master, folder, words):
    """Train as one of the ranks."""
    os.chdir(folder)
    sys.path.insert(0, folder)
    os.environ.update(
        RANK=str(rank), WORLD_SIZE=str(world), MASTER_ADDR=master, MASTER_PORT="29500"
    )
    import train_torch

    sys.argv = ["train.py", *words]
    train_torch.main()


def main():
    """Give each worker a rank and wait for all."""
    world = 4
    with Client(os.environ["SCHEDULER"]) as client:
        client.wait_for_workers(world, timeout=60)
        workers = client.scheduler_info(n_workers=-1)["workers"]
        seats = sorted(workers, key=lambda address: workers[address]["name"])
        master = os.environ["MASTER_ADDR"]
        try:
            futures = [
                client.submit(
                    *(train, rank, world, master, os.getcwd(), sys.argv[1:]),
                    key=f"rank-{rank}",
                    workers=[seat],
                )
                for rank, seat in enumerate(seats)
            ]
            client.gather(futures)
            print(f"all {world} ranks finished")
        finally:
            client.shutdown()


if __name__ == "__main__":
    main()

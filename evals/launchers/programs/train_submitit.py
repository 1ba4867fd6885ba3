"""The program of `train_torch.py`, submitted to Slurm by submitit."""
# mypy: ignore-errors

import os
import sys

import submitit


class Training:
    """What each task runs."""

    def __init__(self, words):
        self.words = words

    def __call__(self):
        """Train as one of the ranks."""
        seat = submitit.JobEnvironment()
        os.environ.update(
            RANK=str(seat.global_rank),
            LOCAL_RANK=str(seat.local_rank),
            WORLD_SIZE=str(seat.num_tasks),
        )
        import train_torch

        sys.argv = ["train.py", *self.words]
        train_torch.main()


if __name__ == "__main__":
    nodes, per_node, memory = (int(word) for word in sys.argv[1:4])
    executor = submitit.AutoExecutor(folder="logs", cluster="slurm")
    executor.update_parameters(
        name="train",
        nodes=nodes,
        tasks_per_node=per_node,
        slurm_time=3,
        slurm_mem=f"{memory}M",
        slurm_additional_parameters={"no_requeue": True},
    )
    print(executor.submit(Training(sys.argv[4:])).job_id)

"""The program of `train_torch.py` under Spark's TorchDistributor."""
# mypy: ignore-errors

import os
import sys

from pyspark.ml.torch.distributor import TorchDistributor
from pyspark.sql import SparkSession


def train(folder, words):
    """Train as one of the ranks."""
    os.chdir(folder)
    sys.path.insert(0, folder)
    import train_torch

    sys.argv = ["train.py", *words]
    train_torch.main()


if __name__ == "__main__":
    spark = SparkSession.builder.appName("train").getOrCreate()
    distributor = TorchDistributor(num_processes=4, local_mode=False, use_gpu=False)
    distributor.run(train, os.getcwd(), sys.argv[1:])
    print("distributor returned, all ranks finished")
    spark.stop()

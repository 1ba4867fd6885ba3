"""A real multi-node Slurm on one machine, and the recovery scenarios that run on it."""

"""Runs evaluation trials: the coordinator, what starts jobs, and the programs that they run."""

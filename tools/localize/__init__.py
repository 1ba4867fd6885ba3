"""Which rank, node or link makes a job slow, from what its collectives and stages took."""

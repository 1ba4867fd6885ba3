"""The stochastic model of a training step: expected step time, what-ifs and job time."""

"""The health tests, scored: simulated clusters, and real gloo processes that are spoiled."""

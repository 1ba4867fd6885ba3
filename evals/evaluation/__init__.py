"""Evaluation scheduling beside other rules: simulated, on real processes, with a real harness."""

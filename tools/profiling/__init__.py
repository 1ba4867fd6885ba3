"""Profiling a running job: a short window on all ranks at the same iteration, kept as summaries."""

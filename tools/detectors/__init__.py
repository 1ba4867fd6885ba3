"""Numeric detectors: slow steps, loss faults and hangs, found in plain arrays.

They know step numbers, times and losses, and nothing of log files, rules or clusters.
"""

"""Measures the numeric detectors on labelled series, beside baselines in the same run."""

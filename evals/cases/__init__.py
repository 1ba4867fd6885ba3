"""Labelled cases: load, diagnose, score beside baselines, and paraphrase to guard against fitting."""

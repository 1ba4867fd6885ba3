"""Puts a derailed training job back on the rails: the vocabulary every wing speaks."""

__version__ = "0.1.0"

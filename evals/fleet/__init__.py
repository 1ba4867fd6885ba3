"""The fleet statistics on simulated years whose truth is known."""

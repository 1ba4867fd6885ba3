"""Recorded jobs, damaged at random in thousands of ways: nothing may shake the reader."""

"""Is a failure found again: same cause, other job, other wording."""

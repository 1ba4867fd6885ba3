"""The launcher lab: the same faults under launchers and frameworks that really run."""

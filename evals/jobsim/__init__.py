"""A simulator of training jobs with known faults: the ground truth of the localisation tables."""

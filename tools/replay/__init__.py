"""What-if replay of an op-level timeline: what the run would have cost without one suspect."""

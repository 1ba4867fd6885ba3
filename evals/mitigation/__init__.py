"""Fail-slow mitigation, scored: splits, placements, escalation, a published schedule, a real job."""

"""Instruments: numeric detectors, the step-time model, read-only access to clusters."""

"""Does learning help, and does it stay safe: a year of synthetic incidents, replayed."""

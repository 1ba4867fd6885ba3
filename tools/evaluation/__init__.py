"""Planning of evaluation trials: loading, inference and metrics apart (Acme, NSDI'24, section 6.2)."""

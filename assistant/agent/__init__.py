"""The model loop: a bounded view in, a grounded answer out; it explains and never decides."""

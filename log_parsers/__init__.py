"""Text and dumps in, typed observations out: no network, no model, no cluster, no verdict."""

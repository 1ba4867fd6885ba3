"""Health tests of nodes: compute speed and exactness, and collectives between pairs of nodes."""

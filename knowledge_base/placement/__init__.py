"""Where an event was: which rank, node and GPU, by an ordered list of sources that show their reasons."""

"""Living with a slow part: fewer micro-batches for it, a better place for it, or a restart without it."""

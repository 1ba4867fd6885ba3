"""Work on many files in shards: a pure scan of each, a pure merge, and runners for both."""

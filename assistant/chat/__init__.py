"""Chat about one incident in a terminal: read-only, cited, and useful without a model too."""

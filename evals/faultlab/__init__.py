"""Real training jobs that fail on purpose, and the scores of rerail on what they wrote."""

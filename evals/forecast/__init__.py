"""The forecast beside numbers that were computed otherwise, brute force, and real processes."""

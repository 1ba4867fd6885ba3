"""Speed, memory and size of the log path, as ratios to public tools on generated logs."""

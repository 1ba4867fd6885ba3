"""Small frozen records that every wing shares; one concept per file."""

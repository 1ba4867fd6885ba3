"""The store of incidents: one database, one migration history, append-only where it matters."""

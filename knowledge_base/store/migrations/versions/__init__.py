"""One file a migration, numbered; a released file never changes."""

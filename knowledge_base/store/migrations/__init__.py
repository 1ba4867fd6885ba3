"""The one migration history of the store; see docs/decisions/0005-one-store-one-history.md."""

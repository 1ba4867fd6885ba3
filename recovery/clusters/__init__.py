"""The only code that changes a cluster, one adapter per scheduler."""

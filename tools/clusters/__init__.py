"""Read-only access to schedulers: nothing here can change a cluster."""

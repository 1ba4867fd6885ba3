"""A real Kubernetes control plane on one machine, and what is checked on it."""

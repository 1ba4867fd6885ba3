"""From the name of a job to its evidence: what Slurm, Kubernetes or a site's own locator knows of it."""

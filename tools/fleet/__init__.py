"""Statistics of a whole site from its record of jobs: what stands out, failures against size, goodput."""

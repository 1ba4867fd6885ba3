"""From a job-failure event to an incident, a plan and its execution: what `hook` and `watch` run."""

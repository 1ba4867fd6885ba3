"""DCGM's counters and reports as files, exporters and a Prometheus server give them; read-only."""

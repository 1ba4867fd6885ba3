"""What an attacker who can write to the job's logs achieves; reported as AgentDojo reports it."""

"""What recovery keeps: the queue, plans, actions, approvals, the audit log, groups, control values."""

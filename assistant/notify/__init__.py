"""Tells people of incidents: one message each, edited in place where the service can."""

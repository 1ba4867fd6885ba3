"""Finds what is known of a failure: signed-off incidents and runbook pages, by words and by vectors."""

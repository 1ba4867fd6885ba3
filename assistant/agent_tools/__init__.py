"""Everything a model, or a canned question, may look at: read-only, bounded, on one incident.

Nothing in this package can act: it does not import `recovery`, starts no process, opens no socket
and writes no file. The import contract and a test hold that.
"""

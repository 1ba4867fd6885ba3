"""The command line; each command loads what it needs when it is called."""

"""Labelled slow jobs for `rerail localize`: what their profiles look like and who is at fault."""

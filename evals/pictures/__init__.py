"""The pictures of `docs/images`: a server over recorded jobs and a simulated year, looked at in a real browser."""

"""A fake model: an OpenAI-compatible server on the loopback that plays a script. It is no model."""

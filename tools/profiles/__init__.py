"""Profiles: what each function of each worker did in a short window, summarised and compared."""

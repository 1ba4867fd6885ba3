"""What each part of the reasoning is good for: it is switched off, and the cases say who notices."""

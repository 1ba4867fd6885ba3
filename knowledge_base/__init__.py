"""What is known: the taxonomy, the rules, the catalogues, and what they make of observations."""

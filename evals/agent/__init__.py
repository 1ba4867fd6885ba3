"""How good is a model at this: any OpenAI-compatible endpoint, beside the rules alone."""

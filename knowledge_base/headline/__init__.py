"""The sentence that a diagnosis begins with, made from a template of its failure type."""

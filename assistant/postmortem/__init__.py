"""Post-mortems: facts from the record, words from rules or a model, edits from people, never mixed up."""

"""The page of `rerail localize --html`: one file without scripts that explains a verdict."""

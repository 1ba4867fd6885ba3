"""The composition root and every face: pipeline, command line, output."""

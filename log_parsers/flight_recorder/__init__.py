"""Flight-recorder dumps in, one verdict out.

`judge.diagnose_dumps(paths)` reads and judges; `loader.load_dumps` and `judge.judge` are its two
halves. `recognise` knows a dump by its first bytes and its name.
"""

"""Cases, fault lab, scorers and benchmarks. They import the product, never the reverse."""

"""How fast would this job run there? Throughput by type x chip variability x network, in one model."""

"""Policies that compute time shares of GPU types by optimisation; one short file each, found by name."""

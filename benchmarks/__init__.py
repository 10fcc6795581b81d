"""Benchmarks with budgets: ours, the reference where there is one, and the ratio. Run with ``make bench``."""

"""Runs and comparisons as functions: what ``import trine`` offers, and what ``trine sim`` calls.

``scenarios`` puts inputs together, ``run`` carries them out, ``results`` is what comes back. Nothing is simulated here.
"""

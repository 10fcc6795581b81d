"""A virtual world that drives the engine: clock, progress, metrics, sweeps. Never a second scheduler."""

"""Measure GPUs and applications; build variability profiles and application classes. Schedules nothing."""

"""trine: a GPU-cluster scheduler and simulator for machine-learning jobs.

GPUs differ by type, by individual chip and by place in the network; trine schedules for all three, in a
simulator and on real clusters, with the same engine. See ``CONTRIBUTING.md`` for the map of the packages.
"""

__version__ = "0.1.0"

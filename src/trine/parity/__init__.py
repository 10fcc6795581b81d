"""Behaviours of published simulators, as strategies that are put into the core where results are compared per job."""

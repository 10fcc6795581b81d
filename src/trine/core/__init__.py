"""Nouns of the field: jobs, clusters, placements, reasons, results. Frozen and typed; no I/O, no clock."""

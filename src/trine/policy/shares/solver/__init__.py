"""The certified allocation solver: every answer comes with a feasible point, a bound and the gap between them."""

"""When jobs will start and end: the engine run forward from one moment, many times. Pure: no files, no clock.

- ``engine_copy``: copies of an engine that share what never changes.
- ``work_history``: what is known of the lengths of jobs, learned from those before; draws of what is left.
- ``leave_one_out``: how alike the jobs of a set are, and where each stands among those like it. ``length_correlation``:
  what jobs that come one after the other have in common.
- ``arrivals``: jobs that will come, drawn from those that came of late.
- ``present``: the cluster at one moment. ``draws``: runs from there on. ``predictions``: intervals and reasons.
- ``score``: whether predictions came true.
"""

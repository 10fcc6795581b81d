"""From shares of time to the jobs that run in a round, each on one GPU type (Gavel, OSDI'20, section 5).

``mechanism`` is a round, step by step. The rules: ``deficit_scheduler`` (seconds behind a share), ``priority_rounds``
(share over time received; accounts in ``share_ledger``, choice in ``round_selection``), ``fifo_rounds`` (whole GPUs).
``problem_builder`` states the allocation problem of a reset from the speeds in ``job_rates``, also of
pairs that were not measured. What published simulators do differently is in ``trine.parity``.

A *unit* is what gets GPUs: a job, or a pair of jobs on the same GPUs. A *reset* computes shares anew. A *deficit* is
the time that a unit lacks of its share. A unit *entitled* to a type has GPUs of it by right of its share; other GPUs
are given out on top.
"""

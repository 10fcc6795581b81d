"""Ray as an engine: its nodes, one placement group per lease, one actor per node of it. Calls of Ray are made by a
process of its own (``driver``), which needs nothing of trine and may run in another Python."""

"""The scheduler: events in, decisions with reasons out. A pure state machine: no I/O, no clock, no threads."""

"""The live scheduler: daemon, journal, HTTP API. It drives the engine with real events and an executor."""

"""The HTTP API: requests in, verbs of ``server.interface`` called, their values out as JSON. Decides nothing itself."""

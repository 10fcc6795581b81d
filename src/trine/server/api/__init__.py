"""The HTTP API: requests in, verbs of ``server.service`` called, their values out as JSON. Decides nothing itself."""

"""The command line: thin. Parse, call, print."""

"""The executor ``local``: jobs as processes of the daemon's own machine. Imports nothing: every supervisor loads it."""

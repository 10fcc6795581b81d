"""Puts a scheduler together from names, settings and files: the same way for the simulator, the daemon and replays."""

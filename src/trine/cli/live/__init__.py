"""The verbs that talk to a running daemon, one module for those that belong together. ``lazy`` mounts them."""

"""Where a job goes. One short file per placement, found by name; see ``base`` for the interface."""

"""Who goes next. One short file per policy, found by name; see ``base`` for the interface."""

"""Files people write: cluster descriptions, presets, settings, variability tables. Strict readers; no scheduling."""

"""Quirks of published simulators as strategies; ``assembly`` puts them in where a setting asks for them."""

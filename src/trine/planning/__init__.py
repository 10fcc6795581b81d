"""Questions about the future: of the live state (in a process that the daemon starts), of simulations, of capacity.

- ``worker``: the process. ``live_present``: the daemon's state as a forecast needs it.
- ``changes``: what can be asked of a live state. ``comparison``: who gains and who loses.
- ``capacity``: the cheapest cluster that meets a target.
"""

"""Real worlds that carry out the engine's decisions: ``base`` is the interface, ``local`` this machine.

Nothing is imported here: a supervisor starts once per job and must stay light."""

"""How busy the links of the simulated cluster are over time: few samples, whatever the length of the run."""

from __future__ import annotations

from trine.core.result import LinkLoad
from trine.perf.traffic import Traffic

MOST = 400
"""Samples kept. With more, every other one goes and the time between them doubles: a sample costs a look at every gang,
and a run may have a million rounds."""


class LinkLoads:
    """Samples of ``Traffic.load``, at least ``every_s`` seconds apart."""

    def __init__(self, traffic: Traffic, nodes: int, every_s: float) -> None:
        """Links with numbers below ``nodes`` are NICs."""
        self._traffic, self._nodes, self._every_s = traffic, nodes, every_s
        self.samples: list[LinkLoad] = []

    def look(self, now: float) -> None:
        """Take a sample if one is due."""
        samples = self.samples
        if samples and now < samples[-1].at_s + self._every_s:
            return
        nic = uplink = 0.0
        for link, load in self._traffic.load().items():
            if link < self._nodes:
                nic = max(nic, load)
            else:
                uplink = max(uplink, load)
        samples.append(LinkLoad(now, nic, uplink))
        if len(samples) > MOST:
            del samples[1::2]
            self._every_s *= 2

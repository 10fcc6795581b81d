"""Why something was decided. A reason is a value that travels unchanged from the engine to CLI, API and reports."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple


class Why(StrEnum):
    """Codes of reasons; stable names that programs may rely on."""

    PLACED = "placed"
    RESUMED = "resumed"
    MOVED = "moved"
    PREEMPTED = "preempted"
    FINISHED = "finished"
    NOT_DECIDED = "not-decided"
    NO_FREE_GPUS = "no-free-gpus"
    HEAD_OF_LINE = "behind-head-of-line"
    RESERVED = "would-delay-reservation"
    REFUSED = "placement-refused"
    STARTING = "waits-for-gpus-to-be-released"
    TOO_LARGE = "too-large"
    CANCELLED = "cancelled"
    HELD = "held"
    TIME_LIMIT = "time-limit"
    PAUSED = "paused"
    SET_ASIDE = "set-aside"
    HOST_TROUBLE = "host-trouble"
    QUOTA = "over-quota"
    TOPOLOGY = "no-room-close-together"
    DEPENDENCY = "waits-for-other-jobs"
    """Other jobs have to end before it may start."""
    WAITS = "waits-for-a-better-place"
    """By choice: GPUs are free, and the job would rather have others for the time being."""


class Trade(NamedTuple):
    """What a stop or move was weighed by: gain and cost in one currency, seconds or worth x speed x seconds."""

    gain: float
    """To the job that gets the GPUs, or to the one that moves."""
    cost: float
    """To the jobs that are stopped."""
    price: float = 0.0
    """Of one GPU of the type that the job leaves, in worth x speed; 0: not known, or none."""
    sentence: str = ""
    """The same in words, with the alternative that was rejected."""

    def figures(self) -> dict[str, float]:
        """By name, for those that read decisions as data."""
        found = {"gain": float(self.gain), "cost": float(self.cost), "price": float(self.price)}
        return {name: value for name, value in found.items() if value}


@dataclass(frozen=True, slots=True)
class Reason:
    """A code, a sentence, the counts behind it and what would change it."""

    code: Why
    sentence: str
    counts: dict[str, float] = field(default_factory=dict)
    change: str = ""
    wakes_s: float = float("inf")
    """When the refusal would be decided otherwise although nothing happens; infinity: never."""

    def __str__(self) -> str:
        return f"{self.sentence} {self.change}".rstrip()

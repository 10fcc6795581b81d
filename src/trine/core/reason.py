"""Why something was decided. A reason is a value that travels unchanged from the engine to CLI, API and reports."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


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
    WAITS = "waits-for-a-better-place"
    """By choice: GPUs are free, and the job would rather have others for the time being."""


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

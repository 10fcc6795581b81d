"""Predicted against observed run times: a bounded log, and how good the predictions were."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from math import isfinite
from statistics import fmean, median

from trine.core.errors import InputError

MOST_PREDICTIONS = 1000


@dataclass(frozen=True, slots=True)
class PredictionError:
    """Errors as shares of the observed time; a positive bias means that jobs were predicted to take longer."""

    runs: int
    median_absolute: float
    bias: float
    """Median of the signed errors."""
    mean: float
    """Mean of the signed errors: shows the wild ones, too."""


class Predictions:
    """The latest run times with what was predicted for them, seconds."""

    def __init__(self, rows: Iterable[tuple[str, float, float]] = ()) -> None:
        self.rows: deque[tuple[str, float, float]] = deque(maxlen=MOST_PREDICTIONS)
        for model, predicted_s, observed_s in rows:
            self.add(model, predicted_s, observed_s)

    def add(self, model: str, predicted_s: float, observed_s: float) -> None:
        """A job of ``model`` was to take ``predicted_s`` and took ``observed_s`` (times of the same work)."""
        for name, value in (("predicted_s", predicted_s), ("observed_s", observed_s)):
            if not (isfinite(value) and value > 0):
                raise InputError("prediction", f"found {value}", "a finite number of seconds greater than 0", name)
        self.rows.append((model, float(predicted_s), float(observed_s)))

    def error(self, model: str | None = None) -> PredictionError | None:
        """Error over all jobs or those of ``model``; ``None`` without any."""
        shares = [(p - o) / o for name, p, o in self.rows if model in (None, name)]
        if not shares:
            return None
        return PredictionError(len(shares), median(map(abs, shares)), median(shares), fmean(shares))

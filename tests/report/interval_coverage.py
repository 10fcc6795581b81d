"""How often 95 % intervals of a mean over seeds hold the true mean, for skewed figures: ``python -m
tests.report.interval_coverage`` prints the table of design record 18."""

from __future__ import annotations

import numpy as np
from scipy.special import stdtrit

RESAMPLES = 1000


def coverage(rng: np.random.Generator, seeds: int, spread: float, samples: int = 3000) -> dict[str, float]:
    """Share of ``samples`` draws of ``seeds`` log-normal values whose interval holds the mean, by method.

    ``spread`` is the standard deviation of the logarithm. ``negative`` is how often Student's begins below zero.
    """
    values = np.exp(spread * rng.standard_normal((samples, seeds)))
    truth = float(np.exp(spread**2 / 2))
    mean = values.mean(axis=1)
    half = stdtrit(seeds - 1, 0.975) * values.std(axis=1, ddof=1) / np.sqrt(seeds)
    factor = np.exp(half / mean)
    drawn = values[:, rng.integers(0, seeds, (RESAMPLES, seeds))].mean(axis=2)
    low, high = np.quantile(drawn, [0.025, 0.975], axis=1)

    def held(below: np.ndarray, above: np.ndarray) -> float:
        return float(((below <= truth) & (truth <= above)).mean())

    return {
        "student": held(mean - half, mean + half),
        "bootstrap": held(low, high),
        "log": held(mean / factor, mean * factor),
        "negative": float((mean < half).mean()),
    }


def main() -> None:
    """Print the table."""
    print("seeds  spread  Student  percentile bootstrap  Student on logarithm  Student below zero")
    for seeds in (3, 5, 10):
        for spread in (0.2, 0.5, 1.0):
            found = coverage(np.random.default_rng(seeds), seeds, spread)
            cells = [f"{found[k]:.0%}" for k in ("student", "bootstrap", "log", "negative")]
            print(f"{seeds:>5}  {spread:>6}  {cells[0]:>7}  {cells[1]:>20}  {cells[2]:>20}  {cells[3]:>18}")


if __name__ == "__main__":
    main()

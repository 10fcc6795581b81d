"""Turns what a script iterates over into the batches from a given step on: counts, loaders, several passes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from itertools import islice
from typing import TypeVar

Batch = TypeVar("Batch")


def batches_from(source: Iterable[Batch], start: int, total: int | None, skip: bool) -> Iterator[Batch]:
    """The batches of steps ``start`` to ``total``; ``total=None`` means one pass.

    With ``skip`` the batches of earlier steps are passed over, so that a resumed run sees the data that an undisturbed
    one would. A source that ends before ``total`` is gone through again if it can be.
    """
    if total is None:
        return islice(source, start if skip else 0, None)
    return islice(_passes(source, start if skip else 0), max(0, total - start))


def _passes(source: Iterable[Batch], skipped: int) -> Iterator[Batch]:
    number, rest = _whole_passes(source, skipped)
    while True:
        _tell_pass(source, number)
        empty = True
        for batch in source:
            empty = False
            if rest:
                rest -= 1
            else:
                yield batch
        if empty or iter(source) is source:
            return
        number += 1


def _whole_passes(source: Iterable[Batch], skipped: int) -> tuple[int, int]:
    length = len(source) if isinstance(source, Sized) else 0
    return divmod(skipped, length) if length else (0, skipped)


def _tell_pass(source: Iterable[Batch], number: int) -> None:
    """Samplers that shuffle by pass have to be told which one it is (``DistributedSampler.set_epoch``)."""
    for owner in (source, getattr(source, "sampler", None)):
        set_epoch = getattr(owner, "set_epoch", None)
        if callable(set_epoch):
            set_epoch(number)

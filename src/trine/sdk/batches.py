"""The batches, from a given step on, of what a script iterates over: counts, loaders, several passes."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sized
from itertools import islice
from typing import Any, TypeVar

from trine.sdk.randomness import OwnStreams, ScriptStreams, Streams, is_of_torch, is_torch_loader, parts_of
from trine.sdk.session import say

Batch = TypeVar("Batch")

_PLAIN = (range, list, tuple, dict, str, bytes)


def batches_from(
    source: Iterable[Batch], start: int, total: int | None, skip: bool, seed: int | None = None
) -> Iterator[Batch]:
    """The batches of steps ``start`` to ``total``; ``total=None`` means one pass.

    With ``skip`` the batches of earlier steps are passed over, so that a resumed run sees the data that an undisturbed
    one would. A source that ends before ``total`` is gone through again if it can be.
    """
    own = skip and (seed is not None or is_torch_loader(source))
    streams: Streams = OwnStreams(seed, source) if own else ScriptStreams()
    skipped = start if skip else 0
    if total is None:
        return _one_pass(source, 0, skipped, streams)
    return islice(_passes(source, skipped, streams), max(0, total - start))


def _passes(source: Iterable[Batch], skipped: int, streams: Streams) -> Iterator[Batch]:
    number, rest = _whole_passes(source, skipped)
    if number:
        _catch_up(source, number, streams)
    while True:
        _announce_pass(source, number)
        if not (yield from _one_pass(source, number, rest, streams)):
            return
        number, rest = number + 1, 0


def _one_pass(source: Iterable[Batch], number: int, rest: int, streams: Streams) -> Generator[Batch, None, bool]:
    """One pass without its first ``rest`` batches; returns whether there can be another one."""
    streams.begin(number)
    with streams.skipping() if rest else streams.drawing():
        batches = iter(source)
        empty = rest == 0 or not sum(1 for _ in islice(batches, rest))
    if isinstance(streams, ScriptStreams):
        for batch in batches:  # nothing to do around each
            empty = False
            yield batch
    else:
        for batch in _drawn(batches, streams):
            empty = False
            yield batch
    return not empty and batches is not source


def _drawn(batches: Iterator[Batch], streams: Streams) -> Iterator[Batch]:
    nothing: Any = object()
    while True:
        with streams.drawing():
            batch = next(batches, nothing)
        if batch is nothing:
            return
        yield batch


def _whole_passes(source: Iterable[Batch], skipped: int) -> tuple[int, int]:
    length = len(source) if isinstance(source, Sized) else 0
    return divmod(skipped, length) if length else (0, skipped)


def _announce_pass(source: Iterable[Batch], number: int) -> None:
    """Samplers that shuffle by pass need its number (``DistributedSampler.set_epoch``)."""
    for owner in (source, *parts_of(source), getattr(source, "dataset", None)):
        set_epoch = getattr(owner, "set_epoch", None)
        if callable(set_epoch):
            set_epoch(number)


def _catch_up(source: Iterable[Batch], number: int, streams: Streams) -> None:
    """Bring a source to the beginning of pass ``number`` without drawing the batches of those before.

    A sampler of the script's own may change from pass to pass: it goes through all of them, which loads no data. What
    else may keep a state is reported on stderr, since it is not known here.
    """
    own = [part for part in parts_of(source) if not _by_pass(part)]
    if own:
        for earlier in range(number):
            streams.begin(earlier)
            with streams.drawing():
                for _ in parts_of(source)[0]:
                    pass
    if hidden := _hidden_state(source, streams):
        passed = f"{number} whole passes over {type(source).__name__} are passed over without being made again"
        say(f"{passed}, and {hidden}")


def _hidden_state(source: object, streams: Streams) -> str:
    """What of a source may depend on the passes before; empty if nothing does."""
    if isinstance(source, _PLAIN) or (not parts_of(source) and _by_pass(source)):
        return ""
    if not parts_of(source):
        own = isinstance(streams, OwnStreams)
        return "" if own else "what its order depends on is not known: give it set_epoch(number), or the loop seed="
    dataset = getattr(source, "dataset", None)
    if not hasattr(dataset, "__getitem__") and not _by_pass(dataset):
        return "what its dataset keeps from pass to pass is not known: give that set_epoch(number)"
    if getattr(source, "num_workers", 0) and getattr(source, "persistent_workers", False):
        return "what its persistent workers draw at random will differ"
    return ""


def _by_pass(part: object) -> bool:
    """Whether a pass depends on nothing but its number and the random streams."""
    return callable(getattr(part, "set_epoch", None)) or is_of_torch(part)

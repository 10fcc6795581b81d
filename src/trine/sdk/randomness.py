"""Random numbers of the data, apart from those of the model: a resumed run sees the batches of an undisturbed one.

A loader that shuffles draws from the global random streams of the process, and so does dropout. Which batch comes when
would then depend on all that was computed before, which a resumed run does not compute again. ``OwnStreams`` gives the
data streams of their own that begin anew at every pass, from a seed and the number of the pass: any pass can be made
again by itself. numpy and torch are used if the script has loaded them and never loaded here.
"""

from __future__ import annotations

import hashlib
import random
import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any, Protocol
from weakref import WeakKeyDictionary

States = tuple[Any, Any, Any]
"""Of the global streams of Python, numpy and torch; ``None`` for what is not loaded or not of interest."""


class Streams(Protocol):
    """Where random numbers come from while batches are drawn."""

    def begin(self, number: int) -> None:
        """Pass ``number`` begins."""

    def drawing(self) -> AbstractContextManager[None]:
        """Around drawing a batch."""

    def skipping(self) -> AbstractContextManager[None]:
        """Around drawing batches that were used before."""


class ScriptStreams:
    """The data draw from the global streams as they always do; passing over batches leaves these as they were."""

    def begin(self, number: int) -> None:
        pass

    def drawing(self) -> AbstractContextManager[None]:
        return nullcontext()

    @contextmanager
    def skipping(self) -> Iterator[None]:
        before = _snapshot()
        try:
            yield
        finally:
            _restore(before)


class OwnStreams:
    """Streams of a source's own: while it draws they take the place of the global ones, which it never advances."""

    def __init__(self, seed: int | None, source: Iterable[Any]) -> None:
        torch = _torch()
        basis = seed if seed is not None else torch.initial_seed() if torch else 0
        self._key = f"{basis} {0 if seed is not None else _loops_over(source)}"
        self._generators = [(found, _first_seed(found)) for found in generators_of(source)]
        # Its workers transform the data in processes of their own, and torch's samplers draw from torch alone.
        self._torch_alone = bool(getattr(source, "num_workers", 0)) and all(map(is_of_torch, parts_of(source)))
        self._states: States = (None, None, None)

    def begin(self, number: int) -> None:
        for generator, first in self._generators:
            generator.manual_seed(_mixed(f"{first} {self._key} {number}"))
        self._states = _seeded(_mixed(f"{self._key} {number}"), self._torch_alone)

    @contextmanager
    def drawing(self) -> Iterator[None]:
        script = _exchange(self._states)
        try:
            yield
        finally:
            self._states = _exchange(script)

    def skipping(self) -> AbstractContextManager[None]:
        return self.drawing()


def parts_of(source: object) -> list[Any]:
    """What decides on the order of a loader, the outermost first."""
    batch_sampler = getattr(source, "batch_sampler", None)
    found = (batch_sampler, getattr(source, "sampler", None), getattr(batch_sampler, "sampler", None))
    return list({id(part): part for part in found if part is not None}.values())


def generators_of(source: object) -> list[Any]:
    """The random generators, as of torch, that a loader and its samplers were given."""
    found = [getattr(owner, "generator", None) for owner in (source, *parts_of(source))]
    seeded = [one for one in found if callable(getattr(one, "manual_seed", None)) and hasattr(one, "initial_seed")]
    return list({id(one): one for one in seeded}.values())


def is_of_torch(part: object) -> bool:
    """Whether its class is one of torch's own."""
    return type(part).__module__.partition(".")[0] == "torch"


def is_torch_loader(source: object) -> bool:
    """Whether it draws its order as a DataLoader does."""
    return _torch() is not None and hasattr(source, "dataset") and bool(parts_of(source))


_LOOPS: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
_FIRST_SEEDS: dict[int, tuple[Any, int]] = {}


def _loops_over(source: Iterable[Any]) -> int:
    """How many loops over this source there were before, so that a loop per epoch does not repeat its order."""
    count = 0
    with suppress(TypeError):  # not every object can be a key
        count = _LOOPS.get(source, 0)
        _LOOPS[source] = count + 1
    return count


def _first_seed(generator: Any) -> int:
    """What the script seeded it with. Kept, since each pass seeds it again."""
    _, seed = _FIRST_SEEDS.setdefault(id(generator), (generator, int(generator.initial_seed())))
    return seed


def _mixed(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def _torch() -> Any:
    torch = sys.modules.get("torch")
    return torch if hasattr(torch, "default_generator") else None


def _numpy() -> Any:
    return getattr(sys.modules.get("numpy"), "random", None)


def _snapshot() -> States:
    numpy, torch = _numpy(), _torch()
    return random.getstate(), numpy.get_state() if numpy else None, torch.get_rng_state() if torch else None


def _restore(states: States) -> None:
    python, numpy, torch = states
    random.setstate(python)
    if numpy is not None:
        _numpy().set_state(numpy)
    if torch is not None:
        _torch().set_rng_state(torch)


def _seeded(seed: int, torch_alone: bool) -> States:
    """States as if the streams had just been seeded, to be used by ``_exchange``."""
    torch = _torch()
    of_torch = torch.Generator().manual_seed(seed).get_state() if torch else None
    if torch_alone:
        return None, None, of_torch
    numpy = _numpy()
    return random.Random(seed).getstate(), _numpy_seeded(numpy, seed % 2**32) if numpy else None, of_torch


def _exchange(states: States) -> States:
    """Put ``states`` in the place of the present ones, which are returned. Done around every batch, so it is quick."""
    python, numpy, torch = states
    if python is not None:
        python, _ = random.getstate(), random.setstate(python)
    if numpy is not None:
        numpy = _numpy_exchanged(_numpy(), numpy)
    if torch is not None:
        generator = _torch().default_generator
        torch, _ = generator.get_state(), generator.set_state(torch)
    return python, numpy, torch


def _numpy_seeded(numpy: Any, seed: int) -> Any:
    state = numpy.RandomState(seed).get_state()
    if not hasattr(numpy, "set_bit_generator"):
        return state
    made = numpy.MT19937()
    made.state = {"bit_generator": "MT19937", "state": {"key": state[1], "pos": state[2]}}
    return made


def _numpy_exchanged(numpy: Any, new: Any) -> Any:
    """Since 1.24 its global stream changes hands without being copied, which would take longer than all the rest."""
    if hasattr(numpy, "set_bit_generator"):
        old = numpy.get_bit_generator()
        numpy.set_bit_generator(new)
    else:
        old = numpy.get_state()
        numpy.set_state(new)
    return old

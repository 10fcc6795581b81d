"""Reads throughputs in Gavel's JSON: GPU type -> (model, gang) -> rate alone and rates beside other models."""

from __future__ import annotations

import ast
import json
from typing import Any

from trine.core.errors import InputError
from trine.inputs.throughput_rows import MOST_GPUS, NOT_A_RATE, RatePlace, RateRows, is_rate

WHAT = 'a JSON object of GPU types, each with entries like "(\'ResNet-18 (batch size 16)\', 1)": {"null": 32.4}'
_SPREAD = "_unconsolidated"
_ALONE = "null"
_KEY = "('model', gang size)"


def read_json(path: str, text: str) -> RateRows:
    """Every rate of the file, alone and in pairs, packed and spread out (``*_unconsolidated``)."""
    data = _parsed(path, text)
    if not isinstance(data, dict) or not data:
        raise InputError(path, f"a JSON {type(data).__name__}{'' if data else ' without content'}", WHAT)
    rows, names = RateRows(), _Names(path)
    for written, entries in data.items():
        if not isinstance(entries, dict):
            raise InputError(path, f"a JSON {type(entries).__name__}", WHAT, written)
        _read_type(rows, names, path, written, entries)
    return rows


def _parsed(path: str, text: str) -> Any:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            keys = [key for key, _ in pairs]
            twice = next(key for i, key in enumerate(keys) if key in keys[:i])
            raise InputError(path, f"the key {twice!r} twice in one object", "every key once")
        return found

    try:
        return json.loads(text, object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        raise InputError(f"{path}:{error.lineno}", f"not JSON ({error.msg})", WHAT) from None
    except RecursionError:
        raise InputError(path, "objects nested too deeply", WHAT) from None


def _read_type(rows: RateRows, names: _Names, path: str, written: str, entries: dict[str, Any]) -> None:
    gpu_type = written.lower()
    spread = gpu_type.endswith(_SPREAD)
    for key, entry in entries.items():
        field = f"{written}.{key}"
        model, gang = names.of(key, written)
        place = RatePlace(gpu_type.removesuffix(_SPREAD), gang, spread)
        alone = entry.get(_ALONE) if isinstance(entry, dict) else None
        if not is_rate(alone):
            raise InputError(path, f"throughput {alone!r}", f'{NOT_A_RATE}, under the key "{_ALONE}"', field)
        rows.add(f"{path}: {field}", model, place, float(alone or 0))
        for other_key, rates in entry.items():
            if other_key != _ALONE:
                _read_pair(rows, names, path, f"{field}.{other_key}", (model, place), (other_key, rates))


def _read_pair(
    rows: RateRows, names: _Names, path: str, field: str, one: tuple[str, RatePlace], entry: tuple[str, Any]
) -> None:
    (model, place), (other_key, rates) = one, entry
    other, gang = names.of(other_key, field)
    if gang != place.gang:
        raise InputError(path, f"a pair of {place.gang} and {gang} GPUs", "pairs of equal gangs", field)
    if not isinstance(rates, list) or len(rates) != 2 or not all(is_rate(rate) for rate in rates):
        raise InputError(path, f"throughputs {rates!r}", f"a list of two numbers, each {NOT_A_RATE}", field)
    rows.add_pair(f"{path}: {field}", model, other, place, (float(rates[0]), float(rates[1])))


class _Names:
    """Models and gangs by the way a file writes them: few different keys, each in thousands of places."""

    def __init__(self, path: str) -> None:
        self._path, self._known = path, dict[str, tuple[str, int]]()

    def of(self, key: str, field: str) -> tuple[str, int]:
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._read(key, field)
        return known

    def _read(self, key: str, field: str) -> tuple[str, int]:
        try:
            value = ast.literal_eval(key)
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            value = None
        if not (isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str) and value[0].strip()):
            raise InputError(self._path, f"key {key!r}", _KEY, field)
        gang = value[1]
        if not isinstance(gang, int) or isinstance(gang, bool) or not 1 <= gang <= MOST_GPUS:
            raise InputError(self._path, f"key {key!r}", f"{_KEY} with a whole number of at least 1", field)
        return value[0], gang

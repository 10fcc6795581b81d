"""Loads measured throughputs from Gavel's JSON: GPU type -> (model, gang) -> steps per second."""

from __future__ import annotations

import ast
import json
import math
from typing import Any

from trine.config.text_file import read_text
from trine.core.errors import InputError
from trine.perf.throughput import ThroughputTable

WHAT = 'a JSON object of GPU types, each with entries like "(\'ResNet-18 (batch size 16)\', 1)": {"null": 32.4}'
_SPREAD = "_unconsolidated"


def load_throughputs(path: str) -> ThroughputTable:
    """Rates of jobs alone on packed GPUs; entries for pairs and for spread gangs are left to those who need them."""
    try:
        data = json.loads(read_text(path, WHAT))
    except json.JSONDecodeError as error:
        raise InputError(f"{path}:{error.lineno}", f"not JSON ({error.msg})", WHAT) from None
    if not isinstance(data, dict) or not data:
        raise InputError(path, f"a JSON {type(data).__name__}", WHAT)
    rates: dict[tuple[str, int], dict[str, float]] = {}
    for gpu_type, entries in data.items():
        if gpu_type.endswith(_SPREAD):
            continue
        if not isinstance(entries, dict):
            raise InputError(path, f"a JSON {type(entries).__name__}", WHAT, gpu_type)
        for key, entry in entries.items():
            rates.setdefault(_model_and_gang(path, gpu_type, key), {})[gpu_type.lower()] = _alone(
                path, f"{gpu_type}.{key}", entry
            )
    return ThroughputTable(rates)


def _model_and_gang(path: str, gpu_type: str, key: str) -> tuple[str, int]:
    try:
        model, gang = ast.literal_eval(key)
        return str(model), int(gang)
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        raise InputError(path, f"key {key!r}", "('model', gang size)", gpu_type) from None


def _alone(path: str, field: str, entry: Any) -> float:
    rate = entry.get("null") if isinstance(entry, dict) else None
    if not isinstance(rate, (int, float)) or isinstance(rate, bool) or not math.isfinite(rate) or rate < 0:
        raise InputError(path, f"throughput {rate!r}", 'steps per second, 0 or more, under the key "null"', field)
    return float(rate)

"""The file of a variability profile: versioned JSON, one GPU a line, the same bytes for the same profile."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trine.core.atomic_file import write_output
from trine.core.errors import InputError, unknown_name
from trine.inputs.text_file import read_text
from trine.profile.variability_profile import (
    FLAGS,
    GPU_MEDIAN,
    WAYS,
    ClassFigures,
    GpuSlowdown,
    ProfiledGpu,
    VariabilityProfile,
)

FORMAT, VERSION = "trine-variability-profile", 1
WHAT = "a variability profile (JSON, as written by trine profile build)"


def profile_text(profile: VariabilityProfile) -> str:
    """The text of the file."""
    head = {
        "format": FORMAT,
        "version": VERSION,
        "how": profile.how,
        "seed": profile.seed,
        "sources": list(profile.sources),
        "notes": list(profile.notes),
        "classes": {c: _figures_dict(figures) for c, figures in profile.classes.items()},
    }
    lines = [f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}," for key, value in head.items()]
    gpus = ",\n".join(json.dumps(_gpu_dict(gpu), ensure_ascii=False) for gpu in profile.gpus)
    return "{\n" + "\n".join(lines) + f'\n"gpus": [\n{gpus}\n]\n}}\n'


def save_profile(profile: VariabilityProfile, path: str | Path) -> None:
    """Write ``profile`` as JSON, all or nothing; equal profiles give equal bytes."""
    write_output(path, profile_text(profile))


def load_profile(path: str | Path) -> VariabilityProfile:
    """The profile in ``path``; anything odd in it is refused with one sentence."""
    top = _Fields(_parsed(path), str(path), "")
    _check_format(top)
    classes = {c: _figures(values) for c, values in top.mappings("classes").items()}
    if not classes:
        raise InputError(str(path), "no class", "at least one class of applications", "classes")
    gpus = tuple(_gpu(entry, classes) for entry in top.list_of_mappings("gpus"))
    how = top.choice("how", WAYS, GPU_MEDIAN)
    profile = VariabilityProfile(gpus, classes, how, top.seed(), top.texts("sources"), top.texts("notes"))
    top.finish()
    _check_names(gpus, str(path))
    return profile


def _figures_dict(figures: ClassFigures) -> dict[str, Any]:
    return {name: getattr(figures, name) for name in ClassFigures.__slots__}


def _gpu_dict(gpu: ProfiledGpu) -> dict[str, Any]:
    classes = {c: {name: getattr(s, name) for name in GpuSlowdown.__slots__} for c, s in gpu.classes.items()}
    return {"gpu": gpu.name, "node": gpu.node, "classes": classes}


def _parsed(path: str | Path) -> Mapping[str, Any]:
    text = read_text(path, WHAT)
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"{path}:{error.lineno}", f"not valid JSON ({error.msg})", WHAT) from None
    except RecursionError:
        raise InputError(str(path), "nested too deeply", WHAT) from None
    if not isinstance(found, dict):
        raise InputError(str(path), f"found {_shown(found)}", WHAT)
    return found


def _check_format(top: _Fields) -> None:
    top.choice("format", (FORMAT,))
    version = top.integer("version", 1)
    if version != VERSION:
        raise InputError(top.file, f"version {version}", f"version {VERSION}, the one this trine knows", "version")


def _check_names(gpus: tuple[ProfiledGpu, ...], path: str) -> None:
    if not gpus:
        raise InputError(path, "no GPU", "at least one GPU", "gpus")
    seen: set[str] = set()
    for i, gpu in enumerate(gpus):
        if gpu.name in seen:
            raise InputError(path, f"GPU {gpu.name!r} found twice", "each GPU once", f"gpus[{i}].gpu")
        seen.add(gpu.name)


def _figures(values: _Fields) -> ClassFigures:
    figures = ClassFigures(
        reference_s=values.number("reference_s", above_zero=True),
        records=values.integer("records", 1),
        gpus=values.integer("gpus", 1),
        spread=values.number("spread"),
        noise=values.number("noise"),
        slow_from=values.number("slow_from", above_zero=True),
    )
    values.finish()
    return figures


def _gpu(values: _Fields, classes: Mapping[str, ClassFigures]) -> ProfiledGpu:
    slowdowns = {c: _slowdown(entry) for c, entry in values.mappings("classes").items()}
    for c in slowdowns:
        if c not in classes:
            raise unknown_name(values.file, "class", c, classes, values.full("classes"))
    gpu = ProfiledGpu(values.text("gpu"), values.text("node", empty=True), slowdowns)
    values.finish()
    return gpu


def _slowdown(values: _Fields) -> GpuSlowdown:
    flags = values.texts("flags")
    for flag in flags:
        if flag not in FLAGS:
            raise unknown_name(values.file, "flag", flag, FLAGS, values.full("flags"))
    slowdown = GpuSlowdown(
        slowdown=values.number("slowdown", above_zero=True),
        runs=values.integer("runs", 1),
        spread=values.number_or_none("spread"),
        measured_at_s=values.number_or_none("measured_at_s"),
        flags=flags,
    )
    values.finish()
    return slowdown


class _Fields:
    """The keys of one JSON object; every reading method names the key in its errors."""

    def __init__(self, values: Mapping[str, Any], file: str, path: str) -> None:
        self.file, self._values, self._path = file, values, path
        self._read: list[str] = []

    def full(self, key: str) -> str:
        return f"{self._path}.{key}" if self._path else key

    def _get(self, key: str) -> Any:
        self._read.append(key)
        return self._values.get(key)

    def _wrong(self, key: str, found: Any, expected: str) -> InputError:
        shown = f"found {_shown(found)}" if key in self._values else "found nothing"
        return InputError(self.file, shown, expected, self.full(key))

    def text(self, key: str, empty: bool = False) -> str:
        found = self._get(key)
        if empty and found is None:
            return ""
        if not isinstance(found, str) or not (found or empty):
            raise self._wrong(key, found, "text")
        return found

    def choice(self, key: str, options: tuple[str, ...], default: str = "") -> str:
        found = self._get(key)
        if found is None and default:
            return default
        if found not in options:
            raise self._wrong(key, found, " or ".join(json.dumps(option) for option in options))
        return str(found)

    def number(self, key: str, above_zero: bool = False) -> float:
        found = self._get(key)
        expected = "a finite number greater than 0" if above_zero else "a finite number of at least 0"
        if isinstance(found, bool) or not isinstance(found, (int, float)):
            raise self._wrong(key, found, expected)
        if not math.isfinite(found) or found < 0 or (above_zero and found == 0):
            raise self._wrong(key, found, expected)
        return float(found)

    def number_or_none(self, key: str) -> float | None:
        return None if self._get(key) is None else self.number(key)

    def integer(self, key: str, minimum: int) -> int:
        found = self._get(key)
        if isinstance(found, bool) or not isinstance(found, int) or found < minimum:
            raise self._wrong(key, found, f"a whole number of at least {minimum}")
        return found

    def seed(self) -> int | None:
        return None if self._get("seed") is None else self.integer("seed", 0)

    def texts(self, key: str) -> tuple[str, ...]:
        found = self._get(key)
        if found is None:
            return ()
        if not isinstance(found, list) or not all(isinstance(entry, str) for entry in found):
            raise self._wrong(key, found, "a list of texts")
        return tuple(found)

    def mappings(self, key: str) -> dict[str, _Fields]:
        """Objects by name, names in order."""
        found = self._get(key)
        if not isinstance(found, dict):
            raise self._wrong(key, found, "an object")
        for name, value in found.items():
            if not isinstance(value, dict) or not name:
                raise InputError(self.file, f"found {_shown(value)}", "an object", f"{self.full(key)}.{name}")
        return {name: _Fields(found[name], self.file, f"{self.full(key)}.{name}") for name in sorted(found)}

    def list_of_mappings(self, key: str) -> list[_Fields]:
        found = self._get(key)
        if not isinstance(found, list):
            raise self._wrong(key, found, "a list")
        for i, value in enumerate(found):
            if not isinstance(value, dict):
                raise InputError(self.file, f"found {_shown(value)}", "an object", f"{self.full(key)}[{i}]")
        return [_Fields(value, self.file, f"{self.full(key)}[{i}]") for i, value in enumerate(found)]

    def finish(self) -> None:
        """Refuse keys that were not read."""
        for key in self._values:
            if key not in self._read:
                raise unknown_name(self.file, "key", key, self._read, self._path)


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."

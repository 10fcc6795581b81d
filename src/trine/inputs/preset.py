"""Presets: named scenarios in YAML that fix jobs and cluster, or a world to draw, policy, placement and settings."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trine.core.errors import unknown_name
from trine.inputs.yaml_reader import Mapping, read_mapping

SHIPPED = Path(__file__).parent / "presets"
WHAT = "a preset file"
_TEXTS = ("trace", "format", "workload", "world", "cluster", "throughputs", "prices", "policy", "placement", "seeds")


@dataclass(frozen=True)
class Preset:
    """What a preset fixes; empty means that the preset leaves it open. Flags override all of it."""

    name: str
    title: str
    about: str = ""
    source: str = ""
    trace: str = ""
    format: str = ""
    workload: str = ""
    world: str = ""
    """A kind of world to draw, in place of jobs and cluster."""
    cluster: str = ""
    throughputs: str = ""
    prices: str = ""
    policy: str = ""
    placement: str = ""
    policies: tuple[str, ...] = ()
    placements: tuple[str, ...] = ()
    seeds: str = ""
    authors: tuple[str, ...] = ()
    """Names of the quirks that ``compat=authors`` stands for here."""
    settings: dict[str, Any] = field(default_factory=dict)


def preset_names() -> list[str]:
    return sorted(path.stem for path in SHIPPED.glob("*.yaml"))


def load_preset(name: str) -> Preset:
    """A shipped preset by name, or a file by its path."""
    path = Path(name) if name.endswith((".yaml", ".yml")) else SHIPPED / f"{name}.yaml"
    if path.parent == SHIPPED and path.stem not in preset_names():
        raise unknown_name("--preset", "preset", name, preset_names())
    top = read_mapping(path, WHAT)
    preset = Preset(
        name=path.stem,
        title=top.text("title"),
        about=" ".join(top.text("about", "").split()),
        source=top.text("source", ""),
        **{key: top.text(key, "") for key in _TEXTS},
        policies=_texts(top, "policies"),
        placements=_texts(top, "placements"),
        authors=_texts(top, "compat_authors"),
        settings=_flat(top, "settings"),
    )
    top.finish()
    return preset


def _texts(top: Mapping, key: str) -> tuple[str, ...]:
    value = top.get(key)
    return tuple(item.text() for item in value.list()) if value else ()


def _flat(top: Mapping, key: str) -> dict[str, Any]:
    """Nested settings by dotted name, as ``--set`` writes them: ``workload: {jobs: 5}`` is ``workload.jobs``."""
    value = top.get(key)
    return dotted(value.mapping().plain()) if value else {}


def dotted(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by dotted name."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= dotted(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return flat

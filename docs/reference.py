"""Writes docs/reference/*.md from the code: what exists, with parameters, meaning and source. Run by ``make docs``."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

from trine.config.preset import load_preset, preset_names
from trine.core.compat import Compat
from trine.core.params import Param, params_of
from trine.core.plugins import discover
from trine.placement.base import Placement
from trine.policy.base import Policy
from trine.sim.settings import GROUPS

HERE = Path(__file__).parent / "reference"
MADE = "<!-- made by `make docs`; edit the code instead -->\n"


def pages() -> dict[str, str]:
    """File name to content."""
    return {
        "policies.md": _catalog("Policies", "Who goes next.", discover("trine.policy", Policy)),
        "placements.md": _catalog(
            "Placements",
            "Where a job goes. Every name also exists with `-sticky` behind it: running jobs then keep their GPUs; "
            "without it all jobs are placed anew every round.",
            discover("trine.placement", Placement),
        ),
        "settings.md": _settings(),
        "presets.md": _presets(),
    }


def _catalog(title: str, lead: str, found: dict[str, Any]) -> str:
    return f"{MADE}# {title}\n\n{lead}\n\n" + "\n".join(_entry(name, cls) for name, cls in found.items())


def _entry(name: str, cls: Any) -> str:
    text = inspect.cleandoc(cls.__doc__ or "")
    source = f"\nSource: {cls.paper}.\n" if cls.paper else ""
    return f"## {name}\n\n{cls.title[0].upper()}{cls.title[1:]}.\n\n{text}\n{source}{_table(params_of(cls))}"


def _table(params: dict[str, Param], prefix: str = "") -> str:
    if not params:
        return ""
    rows = [
        f"| `{prefix}{p.name}` | {p.kind_name.replace('|', ', ')} | {_value(p.default)} | {p.doc} |"
        for p in params.values()
    ]
    return "\n".join(["", "| `--set` | takes | default | meaning |", "|---|---|---|---|", *rows, ""])


def _value(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(f"{v}" for v in value) or "empty"
    return str(value).lower() if value is None or isinstance(value, bool) else f"{value}"


def _settings() -> str:
    quirks = "\n".join(f"- `compat.{name}`" for name in Compat.names())
    parts = [
        f"{MADE}# Settings\n\nEverything `--set key=value` reaches, besides the parameters of policies and placements.\n"
    ]
    for group, owner in GROUPS.items():
        prefix = "" if group == "run" else f"{group}."
        parts.append(f"## {group.capitalize()}\n\n{owner.__doc__}\n{_table(params_of(owner), prefix)}")
    parts.append(
        "## Quirks of published code\n\nSee [simulate like a published system](../published.md). `compat=authors` turns on "
        f"those of the preset.\n\n{quirks}\n"
    )
    return "\n".join(parts)


def _presets() -> str:
    found = [load_preset(name) for name in preset_names()]
    entries = [f"## {p.name}\n\n{p.title}.\n\n{p.about}\n\nSource: {p.source}.\n" for p in found]
    return f"{MADE}# Presets\n\n`--preset NAME` starts from one of these, flags override it.\n\n" + "\n".join(entries)


def main() -> None:
    HERE.mkdir(exist_ok=True)
    for name, content in pages().items():
        (HERE / name).write_text(content, encoding="utf-8")


if __name__ == "__main__":
    main()

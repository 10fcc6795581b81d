"""``trine policies``, ``placements``, ``presets``, ``settings``: what exists, and its parameters."""

from __future__ import annotations

from typing import Annotated, Any

import typer

AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")]


def policies(as_json: AsJson = False) -> None:
    """List the policies: which jobs go next, which share each gets."""
    from trine.assembly.registry import ordering_policies, share_policies

    ordering, sharing = ordering_policies(), share_policies()
    if as_json:
        found = {name: _entry(cls) | {"computes": "order"} for name, cls in ordering.items()}
        shares = {name: _entry(cls) | {"computes": "shares"} for name, cls in sharing.items()}
        # A name in both families is one policy with two forms: the order comes first, its shares inside.
        both = {name: found[name] | {"as_shares": shares[name]} for name in found if name in shares}
        _print_json(shares | found | both)
        return
    _show(ordering, as_json=False)
    _show(sharing, as_json=False, mark=" (shares)")
    typer.echo("(shares): computes shares of time by GPU type; `trine allocate` shows them for one problem.")


def placements(as_json: AsJson = False) -> None:
    """List the placements: where a job goes."""
    from trine.assembly import registry

    _show(registry.placements(), as_json)
    if not as_json:
        typer.echo("Every placement exists with -sticky after its name: running jobs then keep their GPUs.")


def presets(as_json: AsJson = False) -> None:
    """List the scenario presets."""
    from trine.inputs.preset import load_preset, preset_names

    found = [load_preset(name) for name in preset_names()]
    if as_json:
        _print_json({p.name: {"title": p.title, "about": p.about, "source": p.source} for p in found})
        return
    for p in found:
        typer.echo(f"{p.name}: {p.title}")
        typer.echo(_wrapped(f"{p.about} Source: {p.source}." if p.source else p.about))


def settings(as_json: AsJson = False) -> None:
    """List what --set changes besides policies and placements."""
    from trine.assembly.settings import GROUPS
    from trine.core.params import params_of
    from trine.parity.flags import Compat

    prefixes = {group: "" if group == "run" else f"{group}." for group in GROUPS}
    found = {prefixes[group] + name: p for group, owner in GROUPS.items() for name, p in params_of(owner).items()}
    if as_json:
        _print_json({name: _param(p) for name, p in found.items()})
        return
    for name, p in found.items():
        typer.echo(f"{name} = {_value(p.default)}  ({p.kind_name}): {p.doc}")
    typer.echo(f"compat = authors: all quirks of the preset's authors; or one by one: {', '.join(Compat.names())}")


def _print_json(value: dict[str, Any]) -> None:
    import json

    typer.echo(json.dumps(value, indent=1))


def _show(found: dict[str, type], as_json: bool, mark: str = "") -> None:
    if as_json:
        _print_json({name: _entry(cls) for name, cls in found.items()})
        return
    from trine.core.params import params_of

    for name, cls in found.items():
        entry = _entry(cls)
        typer.echo(f"{name}{mark}: {entry['title']}" + (f"  [{entry['paper']}]" if entry["paper"] else ""))
        for p in params_of(cls).values():
            typer.echo(f"    --set {p.name}={_value(p.default)}  ({p.kind_name}): {p.doc}")


def _entry(cls: Any) -> dict[str, Any]:
    from trine.core.params import params_of

    return {"title": cls.title, "paper": cls.paper, "parameters": {n: _param(p) for n, p in params_of(cls).items()}}


def _param(p: Any) -> dict[str, Any]:
    return {"type": p.kind_name, "default": p.default, "doc": p.doc}


def _value(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(f"{v}" for v in value)
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    return str(value)


def _wrapped(text: str) -> str:
    import textwrap

    return textwrap.fill(text, 100, initial_indent="    ", subsequent_indent="    ")

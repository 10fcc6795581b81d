"""Writes docs/reference/*.md from the code: what exists, with parameters, meaning and source. Run by ``make docs``."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

import trine
from trine.assembly.registry import ordering_policies, placements, share_policies
from trine.assembly.settings import GROUPS
from trine.core.params import Param, params_of
from trine.core.result import Summary
from trine.executor import registry
from trine.experiment.arguments import MoreInputs
from trine.inputs.job_rules import EXPECTED
from trine.inputs.job_spec import JobSpec
from trine.inputs.power import published_powers
from trine.inputs.preset import load_preset, preset_names
from trine.parity.flags import Compat
from trine.policy.shares.rounds.round_params import RoundParams
from trine.policy.view import View
from trine.server.api.app import build_app
from trine.server.api.errors import STATUS
from trine.server.metrics import TABLE

HERE = Path(__file__).parent / "reference"
MADE = "<!-- made by `make docs`; edit the code instead -->\n"


def pages() -> dict[str, str]:
    """File name to content."""
    return {
        "policies.md": _catalog("Policies", "Which jobs go next.", ordering_policies()),
        "share-policies.md": _shares(),
        "placements.md": _catalog(
            "Placements",
            "Where a job goes. Every name also exists with `-sticky` behind it: running jobs then keep their GPUs; "
            "without it all jobs are placed anew every round.",
            placements(),
        ),
        "view.md": _view(),
        "settings.md": _settings(),
        "engines.md": _engines(),
        "presets.md": _presets(),
        "jobs.md": _jobs(),
        "api.md": _api(),
        "metrics.md": _metrics(),
        "summary.md": _summary(),
        "python.md": _python(),
    }


def _catalog(title: str, lead: str, found: dict[str, Any]) -> str:
    return f"{MADE}# {title}\n\n{lead}\n\n" + "\n".join(_entry(name, cls) for name, cls in found.items())


def _shares() -> str:
    lead = (
        "How the time on each GPU type is shared out; the round mechanism turns shares into who runs where. `fifo` is also "
        "an ordering policy: `aware`, `form` or `space_sharing` select this one. See [policies](../policies.md)."
    )
    rounds = f"\n## The round mechanism\n\nParameters of all share policies.\n{_table(params_of(RoundParams))}"
    return _catalog("Share policies", lead, share_policies()) + rounds


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


_KINDS = {"Floats": "numbers", "Ints": "whole numbers", "Flags": "true or false"}
"""Columns by the name of their annotation."""
_NOT_BY_JOB = ("free", "capacity", "allowed(order)")
"""Arrays that have no value per job."""


def _view() -> str:
    text = inspect.cleandoc(View.__doc__ or "").replace("``", "`")
    columns, others = [], []
    for name, kind, meaning in _members_of_view():
        row = (f"`view.{name}`", _KINDS.get(kind, f"`{kind}`".replace("|", "or")), meaning)
        (columns if kind in _KINDS and name not in _NOT_BY_JOB else others).append(row)
    own = (
        "A policy is asked with a view in every round; `view.COLUMN` is an array with one value per job. A column that "
        "does not exist is an error that names the nearest. See [add a policy](../../README.md#add-a-policy)."
    )
    return (
        f"{MADE}# What a policy sees\n\n{text}\n\n{own}\n\n## Columns\n\n{_rows(('column', 'values', 'meaning'), columns)}"
        f"\n## Of the moment, the cluster and single jobs\n\n{_rows(('name', 'gives', 'meaning'), others)}"
    )


def _members_of_view() -> Iterable[tuple[str, str, str]]:
    """Name, kind and meaning of everything public: attributes of the class and of ``__init__``, properties, methods."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(View))).body[0]
    assert isinstance(tree, ast.ClassDef)
    yield from _attributes(tree.body, {})
    for function in (node for node in tree.body if isinstance(node, ast.FunctionDef)):
        if function.name == "__init__":
            arguments = {arg.arg: ast.unparse(arg.annotation) for arg in function.args.args if arg.annotation}
            yield from _attributes(function.body, arguments)
        elif not function.name.startswith("_"):
            called = "" if function.decorator_list else f"({', '.join(a.arg for a in function.args.args[1:])})"
            kind = ast.unparse(function.returns) if function.returns else ""
            yield function.name + called, kind, _one_line(ast.get_docstring(function) or "")


def _attributes(body: list[ast.stmt], kinds: dict[str, str]) -> Iterable[tuple[str, str, str]]:
    """Attributes with a docstring below them; ``kinds`` are those of the arguments that they may be named after."""
    for node, below in pairwise(body):
        if not isinstance(node, ast.Assign | ast.AnnAssign) or not isinstance(below, ast.Expr):
            continue
        target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
        name = target.attr if isinstance(target, ast.Attribute) else ast.unparse(target)
        if not name.startswith("_") and isinstance(below.value, ast.Constant):
            yield name, _kind_of(node, kinds.get(name, "")), _one_line(str(below.value.value))


def _kind_of(node: ast.Assign | ast.AnnAssign, argument: str) -> str:
    if isinstance(node, ast.AnnAssign):
        return ast.unparse(node.annotation)
    return ast.unparse(node.value.func) if isinstance(node.value, ast.Call) else argument


def _one_line(text: str) -> str:
    return " ".join(text.replace("``", "`").split())


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


def _engines() -> str:
    lead = "What runs the jobs of `trine up --engine NAME`, set up with `--set engine.KEY=VALUE`. See [engines](../engines.md)."
    parts = [f"{MADE}# Engines\n\n{lead}\n"]
    for name in registry.names():
        owner = type(registry.engine(name, {}))
        parts.append(f"## {name}\n\n{_one_line(owner.__doc__ or '')}\n{_table(params_of(owner), 'engine.')}")
    return "\n".join(parts)


def _presets() -> str:
    found = [load_preset(name) for name in preset_names()]
    entries = [f"## {p.name}\n\n{p.title}.\n\n{p.about}\n\nSource: {p.source}.\n" for p in found]
    return f"{MADE}# Presets\n\n`--preset NAME` starts from one of these, flags override it.\n\n" + "\n".join(entries)


def _jobs() -> str:
    lead = (
        "What a job file, the body of a submission and the options of `trine submit` can say. Only `run` is needed. "
        "An unknown key is an error that names the nearest one. In a file, a relative directory is taken from where the "
        "file lies. See [run jobs](../live.md)."
    )
    rows = [(f"`{key}`", EXPECTED[key].replace("|", ", "), _default_of(key)) for key in EXPECTED]
    return f"{MADE}# Job files\n\n{lead}\n\n{_rows(('key', 'takes', 'default'), rows)}"


def _default_of(key: str) -> str:
    if key in _WITHOUT_DEFAULT:
        return _WITHOUT_DEFAULT[key]
    owner: type[BaseModel] = JobSpec
    *outer, last = key.split(".")
    for name in outer:
        owner = type(_fields(owner)[name].get_default(call_default_factory=True))
    default = _fields(owner)[last].get_default(call_default_factory=True)
    return "none" if default is None else _value(default) or "empty"


_WITHOUT_DEFAULT = {
    "run": "needed",
    "name": "that of the script or program it runs",
    "workdir": "where `trine submit` is called; the job's checkpoint directory over the API",
    "env": "empty",
    "gpus": "1, any type",
    "queue": "the daemon's default queue",
    "user": "the caller",
    "checkpoint": "see below",
    "checkpoint.dir": "a directory of the job in the state directory",
    "topology": "see below",
    "retries": "the queue's, which is 0 unless configured",
    "preemptible": "true",
}
"""Defaults that a value alone does not say."""


def _fields(owner: type[BaseModel]) -> dict[str, FieldInfo]:
    return {field.alias or name: field for name, field in owner.model_fields.items()}


def _api() -> str:
    lead = (
        "Every path but `/healthz` needs the header `Authorization: Bearer TOKEN`. The complete description, with the "
        "shape of every value, is the OpenAPI document at `/openapi.json` of a running daemon. Times are Unix seconds."
    )
    nobody: Any = SimpleNamespace(changed=None, board=None, holder=None)
    paths = build_app(nobody, nobody).openapi()["paths"]
    rows = [
        (f"`{method.upper()} {path}`", _parameters(call), call["description"])
        for path, methods in paths.items()
        for method, call in methods.items()
    ]
    codes = _rows(("code", "status"), [(f"`{code}`", str(status)) for code, status in STATUS.items()])
    return (
        f"{MADE}# HTTP API\n\n{lead}\n\n{_rows(('call', 'parameters', 'meaning'), rows)}\n"
        'Errors have the body `{"code", "message", "field"}`. Codes that are not listed here name a refusal: status '
        f"422 for a submission, 409 for every other call.\n\n{codes}"
    )


def _parameters(call: dict[str, Any]) -> str:
    return ", ".join(f"`{p['name']}`" for p in call.get("parameters", ()) if p["in"] != "path")


def _metrics() -> str:
    lead = "What `/metrics` of the daemon reports to Prometheus. See [operations](../operations.md#watch-it)."
    rows = [(f"`{name}`", meaning) for name, meaning in TABLE.items()]
    return f"{MADE}# Metrics\n\n{lead}\n\n{_rows(('metric', 'meaning'), rows)}"


def _summary() -> str:
    lead = (
        "Keys of `summary.json`, of `--json` and of `compare.json`; `--metrics` shows some of them, by key or by what "
        "several begin with (`rho`). Times are seconds. Values by GPU type are objects in JSON and `KEY.TYPE` in tables. "
        "See [output files](../outputs.md)."
    )
    rows = [(f"`{m.key}`", m.doc, f"`{m.formula}`" if m.formula else "") for m in Summary.metrics()]
    power = (
        "Watts per GPU by type, as the makers state them: what a card may draw at most, so that energies are upper bounds. "
        "`--set watts=TYPE=WATTS,...` states others."
    )
    watts = [(f"`{p.gpu_type}`", f"{p.watts:g}", p.source) for p in published_powers()]
    return (
        f"{MADE}# Summary of a run\n\n{lead}\n\n{_rows(('key', 'meaning', 'formula'), rows)}\n"
        f"## Board power\n\n{power}\n\n{_rows(('type', 'watts', 'source'), watts)}"
    )


def _python() -> str:
    lead = (
        "Names of `import trine`; see [from a notebook](../notebook.md). They are stable: what is not listed here may change. "
        "Errors that a caller can correct are a `trine.TrineError` with one sentence."
    )
    functions = "\n".join(_function(f) for f in (trine.simulate, trine.compare, trine.load_trace))
    more = _rows(
        ("argument", "type", "meaning"), [(f"`{n}`", f"`{k}`".replace("|", "or"), m) for n, k, m in _further()]
    )
    classes = "\n".join(_class(c) for c in (trine.Simulation, trine.Comparison, trine.Trace, trine.Client))
    bases = (trine.KeyPolicy, trine.Policy, trine.SharePolicy, trine.Placement, trine.View, trine.TrineError)
    rows = [(f"`trine.{c.__name__}`", _one_line((c.__doc__ or "").split("\n\n")[0])) for c in bases]
    rows.append(("`trine.param`", _one_line(trine.param.__doc__ or "")))
    return (
        f"{MADE}# Python API\n\n{lead}\n\n{functions}\n## Further arguments of simulate and compare\n\n{more}\n{classes}\n"
        f"## To write policies and placements\n\n{_rows(('name', 'meaning'), rows)}"
    )


def _function(function: Any) -> str:
    text = inspect.cleandoc(function.__doc__ or "").replace("``", "`")
    arguments = [_argument(p) for p in inspect.signature(function).parameters.values()]
    return f"## {function.__name__}\n\n```text\ntrine.{function.__name__}({', '.join(arguments)})\n```\n\n{text}\n"


def _argument(parameter: inspect.Parameter) -> str:
    if parameter.kind is parameter.VAR_KEYWORD:
        return f"**{parameter.name}"
    return parameter.name if parameter.default is parameter.empty else f"{parameter.name}={parameter.default!r}"


def _further() -> Iterable[tuple[str, str, str]]:
    tree = ast.parse(textwrap.dedent(inspect.getsource(MoreInputs))).body[0]
    assert isinstance(tree, ast.ClassDef)
    return _attributes(tree.body, {})


def _class(owner: Any) -> str:
    """A table of what is public, in the order of the source."""
    rows = []
    for name, member in vars(owner).items():
        function = getattr(member, "func", getattr(member, "fget", member))
        if name.startswith("_") or not inspect.isfunction(function) or not function.__doc__:
            continue
        arguments = [_argument(p) for p in list(inspect.signature(function).parameters.values())[1:]]
        called = f"({', '.join(arguments)})" if function is member else ""
        rows.append((f"`{name}{called}`", _one_line(function.__doc__)))
    text = inspect.cleandoc(owner.__doc__ or "").replace("``", "`")
    return f"## {owner.__name__}\n\n{text}\n\n{_rows(('member', 'meaning'), rows)}"


def _rows(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [header, ("---",) * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def main() -> None:
    HERE.mkdir(exist_ok=True)
    for name, content in pages().items():
        (HERE / name).write_text(content, encoding="utf-8")


if __name__ == "__main__":
    main()

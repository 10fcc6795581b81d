"""Commands that are imported when they are called: listing them costs a line in a table and no import.

Their options are parsed without pydantic, which typer imports for the first option that is no flag: half of a verb's
start-up. Only plain cases are taken over (absent, default, text, path, choice); everything else goes the usual way.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

PACKAGE = "trine.cli"
VERBS = {
    "sim": ("sim:app", "Simulate a trace or a generated workload on a cluster."),
    "view": ("view:view", "Show recorded runs in a browser, one or two side by side."),
    "trace": ("trace:app", "Look at job traces and convert them."),
    "cluster": ("cluster:app", "Look at cluster descriptions and convert them."),
    "profile": ("profile:app", "Measure GPUs and applications; make profiles of them."),
    "allocate": ("allocate:allocate", "Compute each job's share of time on each GPU type."),
    "reproduce": ("reproduce:app", "Run the experiments of a paper again and compare."),
    "plan": ("plan:plan", "Find the least capacity that meets a target."),
    "policies": ("catalog:policies", "List the policies: which jobs go next, which share each gets."),
    "placements": ("catalog:placements", "List the placements: where a job goes."),
    "presets": ("catalog:presets", "List the scenario presets."),
    "settings": ("catalog:settings", "List what --set changes besides policies and placements."),
    "up": ("live.up:up", "Start the daemon that runs jobs on this machine's GPUs."),
    "submit": ("live.submit:submit", "Submit job files, or a command after --, and print the ids."),
    "queue": ("live.queue:queue", "List jobs: state, times, where they run, why they wait."),
    "top": ("live.top:top", "Watch GPUs and jobs in the terminal; q or Ctrl-C ends it."),
    "history": ("live.history:history", "List ended jobs with their GPU time; also as CSV and Parquet."),
    "show": ("live.single_job:show", "Show everything about one job."),
    "explain": ("live.single_job:explain", "Say why a job waits, or why it runs where it does."),
    "predict": ("live.predict:predict", "Say when jobs will start and end, with intervals."),
    "whatif": ("live.whatif:whatif", "Say who would gain and who would lose by a change."),
    "cancel": ("live.change:cancel", "Cancel jobs; running ones are stopped."),
    "hold": ("live.change:hold", "Keep jobs from running until they are released."),
    "release": ("live.change:release", "Let held jobs run again."),
    "priority": ("live.change:priority", "Let a job go before others, or behind them."),
    "quota": ("live.quota:quota", "List or change how many GPUs users and queues may hold."),
    "logs": ("live.single_job:logs", "Print what a job wrote, over all its attempts."),
    "wait": ("live.single_job:wait", "Wait until jobs have ended and exit with their status."),
    "nodes": ("live.nodes:nodes", "List GPUs: their jobs, how fast they are, what is odd."),
    "drain": ("live.nodes:drain", "Start nothing more on nodes, or on single GPUs."),
    "undrain": ("live.nodes:undrain", "Let jobs start on nodes, or on single GPUs, again."),
    "dashboard": ("live.dashboard:dashboard", "Open the dashboard in a browser, logged in."),
    "replay": ("live.replay:replay", "Decide a recorded run again, simulate it, and compare."),
    "completion": ("completion:completion", "Print a script that completes trine's commands in a shell."),
    "gc": ("live.gc:gc", "Remove logs, directories and records that are kept no longer."),
    "token": ("live.token:app", "Give users tokens for the daemon, list them, take them back."),
}
"""Verb to (module:attribute, below ``PACKAGE``; first line of its help)."""


class LazyGroup(TyperGroup):
    """The commands of ``VERBS``."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        quicken(self, below=False)
        for name, (_, line) in VERBS.items():
            self.commands[name] = TyperCommand(name, help=line, rich_markup_mode=None)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """What is only listed stays a stub; what is called is loaded."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, load(name) if name in VERBS else command, rest


def load(name: str) -> Any:
    """The real command behind a verb."""
    module, _, attribute = VERBS[name][0].partition(":")
    found = getattr(importlib.import_module(f"{PACKAGE}.{module}"), attribute)
    if isinstance(found, typer.Typer):
        found.rich_markup_mode = None
        command: Any = typer.main.get_group(found)
    else:
        app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
        app.command(name, **getattr(found, "command_options", {}))(found)
        command = typer.main.get_command(app)
    quicken(command)
    return command


# -- parsing without pydantic ----------------------------------------------------------------------------------------

_USUAL = object()


def quicken(command: Any, below: bool = True) -> None:
    """Let the parameters of a command, and of those below it, convert plain values themselves."""
    usual = command.get_params

    def get_params(ctx: Any) -> Any:
        params = usual(ctx)
        for param in params:
            # Older versions of typer have no descriptors, and no need for this either.
            if hasattr(param, "type_descriptor") and "process_value" not in vars(param):
                param.process_value = _process(param, param.process_value)
        return params

    command.get_params = get_params
    for each in getattr(command, "commands", {}).values() if below else ():
        quicken(each)


def _process(param: Any, usual: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def process(ctx: Any, value: Any) -> Any:
        found = _converted(value, param)
        if found is _USUAL:
            return usual(ctx, value)
        return found if param.callback is None else param.callback(ctx, param, found)

    return process


def _converted(value: Any, param: Any) -> Any:
    kind = param.type_descriptor.annotation
    many = param.multiple or param.nargs == -1
    if value is None or value == ():
        return _USUAL if param.required else () if many else None
    if many:
        texts = kind == list[str] and all(isinstance(item, str) for item in value)
        return list(value) if texts else _USUAL
    if value is param.default:
        return value
    if not isinstance(value, str):
        return _USUAL
    return _from_text(value, kind)


def _from_text(text: str, kind: Any) -> Any:
    if kind is str:
        return text
    if kind is Path:
        return Path(text)
    if isinstance(kind, type) and issubclass(kind, StrEnum) and text in set(kind):
        return kind(text)
    return _USUAL

"""Commands that are imported when they are called: listing them costs a line in a table and no import."""

from __future__ import annotations

import importlib
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from trine.cli.live.quick import quicken

PACKAGE = "trine.cli"
VERBS = {
    "sim": ("sim:app", "Simulate a trace or a generated workload on a cluster."),
    "trace": ("trace:app", "Look at job traces and convert them."),
    "cluster": ("cluster:app", "Look at cluster descriptions and convert them."),
    "profile": ("profile:app", "Measure GPUs and applications; make profiles of them."),
    "allocate": ("allocate:allocate", "Compute each job's share of time on each GPU type."),
    "reproduce": ("reproduce:app", "Run the experiments of a paper again and compare."),
    "policies": ("catalog:policies", "List the policies: who goes next, who gets which share."),
    "placements": ("catalog:placements", "List the placements: where a job goes."),
    "presets": ("catalog:presets", "List the scenario presets."),
    "settings": ("catalog:settings", "List what --set changes besides policies and placements."),
    "up": ("live.up:up", "Start the daemon that runs jobs on this machine's GPUs."),
    "submit": ("live.submit:submit", "Submit job files, or a command after --, and print the ids."),
    "queue": ("live.queue:queue", "List jobs: state, times, where they run, why they wait."),
    "show": ("live.show:show", "Show everything about one job."),
    "explain": ("live.show:explain", "Say why a job waits, or why it runs where it does."),
    "cancel": ("live.change:cancel", "Cancel jobs; running ones are stopped."),
    "hold": ("live.change:hold", "Keep jobs from running until they are released."),
    "release": ("live.change:release", "Let held jobs run again."),
    "logs": ("live.logs:logs", "Print what a job wrote, over all its attempts."),
    "wait": ("live.wait:wait", "Wait until jobs have ended and exit with their status."),
    "nodes": ("live.nodes:nodes", "List GPUs: who holds them, how fast they are, what is odd."),
    "drain": ("live.nodes:drain", "Start nothing more on nodes, or on single GPUs."),
    "undrain": ("live.nodes:undrain", "Let jobs start on nodes, or on single GPUs, again."),
    "replay": ("live.replay:replay", "Decide a recorded run again, simulate it, and compare."),
    "completion": ("completion:completion", "Print a script that completes trine's commands in a shell."),
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

"""``trine submit``: jobs from files, or one command after ``--``. Ids on stdout, one a line."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trine.cli.live.trailing_command import TrailingCommand, trailing_command
from trine.cli.live.verb import Form, Output, State, connected, fail, print_json, verb

if TYPE_CHECKING:
    from trine.client import Client

_FROM_SLURM = {
    **dict.fromkeys(["--gres", "-G"], "--gpus"),
    **dict.fromkeys(["--gpus-per-node", "-N"], "--nodes, and --gpus for the GPUs in all"),
    **dict.fromkeys(["--ntasks", "-n", "--ntasks-per-node"], "--ranks"),
    **dict.fromkeys(["--time", "-t"], "--max-runtime"),
    **dict.fromkeys(["--partition", "-p"], "--queue"),
    **dict.fromkeys(["--job-name", "-J"], "--name"),
    **dict.fromkeys(["--chdir", "-D"], "--workdir"),
    **dict.fromkeys(["--dependency", "-d"], "--after"),
    "-a": "--array",
}
"""Options of sbatch that have another name here; docs/slurm.md has all of them."""
_OPTION_OF = {
    "run": "the command after --",
    "gpus.count": "--gpus",
    "gpus.types": "--gpu-types",
    "checkpoint.dir": "--checkpoint-dir",
    "checkpoint.grace_s": "--grace",
}
"""Options that are called otherwise than their key in a job file."""
_JOB_FILES = frozenset([".yaml", ".yml"])
_SCRIPTS = {".py": "python", ".sh": "bash"}
"""What runs a file that does not say it in its first line."""


class SubmitCommand(TrailingCommand):
    """Says how the words of sbatch are called here."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not ctx.resilient_parsing:
            _refuse_options_of_sbatch(args[: args.index("--")] if "--" in args else args)
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [*super().collect_usage_pieces(ctx)[:1], "FILE.yaml... | -- CMD..."]


def _refuse_options_of_sbatch(args: list[str]) -> None:
    """With the name they have here, which a search for similar letters does not find."""
    from trine.core.errors import InputError

    for word in args:
        option = word.partition("=")[0]
        if option in _FROM_SLURM:
            raise InputError("submit", f"{option}, an option of sbatch", _FROM_SLURM[option])


def _option(flag: str, metavar: str, about: str) -> Any:
    return typer.Option(flag, metavar=metavar, help=about, show_default=False)


def _flag(flag: str, about: str) -> Any:
    return typer.Option(flag, help=about, show_default=False)


@verb
def submit(
    ctx: typer.Context,
    files: Annotated[list[Path] | None, typer.Argument(help="Job files (YAML).", show_default=False)] = None,
    gpus: Annotated[int | None, _option("--gpus", "N", "Number of GPUs.  [default: 1]")] = None,
    gpu_types: Annotated[str | None, _option("--gpu-types", "A,B", "GPU types it may run on; any if not said.")] = None,
    nodes: Annotated[int | None, _option("--nodes", "N", "Spread the GPUs evenly over so many nodes.")] = None,
    ranks: Annotated[str | None, _option("--ranks", "node|gpu", "Processes: one per node, or per GPU.")] = None,
    name: Annotated[str | None, _option("--name", "TEXT", "Name, for people.  [default: the script's]")] = None,
    queue: Annotated[str | None, _option("--queue", "Q", "Queue to submit to.")] = None,
    user: Annotated[str | None, _option("--user", "U", "On behalf of this user (administrators).")] = None,
    priority: Annotated[float | None, _option("--priority", "X", "Larger goes first.")] = None,
    model: Annotated[str | None, _option("--model", "M", "Model that is trained.")] = None,
    app_class: Annotated[str | None, _option("--class", "C", "Application class, such as A.")] = None,
    steps: Annotated[float | None, _option("--steps", "N", "Training steps in all.")] = None,
    env: Annotated[list[str] | None, _option("--env", "K[=V]", "Environment variable; K alone is passed on.")] = None,
    export: Annotated[
        str | None,
        _option(
            "--export", "NAMES", "Variables of this environment to pass: none, all, names.  [default: PATH and such]"
        ),
    ] = None,
    workdir: Annotated[Path | None, _option("--workdir", "DIR", "Directory to run in.  [default: this one]")] = None,
    checkpoint_dir: Annotated[Path | None, _option("--checkpoint-dir", "DIR", "Where it keeps checkpoints.")] = None,
    grace_s: Annotated[float | None, _option("--grace", "S", "Seconds between SIGTERM and SIGKILL.")] = None,
    max_runtime: Annotated[str | None, _option("--max-runtime", "T", "Stop it after 90m, 2h, 1.5d.")] = None,
    deadline: Annotated[str | None, _option("--deadline", "T", "6h from now, or 2030-01-31T18:00Z.")] = None,
    retries: Annotated[int | None, _option("--retries", "N", "Start it again so often if it fails by itself.")] = None,
    no_preempt: Annotated[bool, _flag("--no-preempt", "Once started, do not stop it for other jobs.")] = False,
    min_run: Annotated[str | None, _option("--min-run", "T", "Do not stop it for others before 10m.")] = None,
    after: Annotated[
        list[str] | None, _option("--after", "JOBS", "Start when these have ended well; any:JOB, failed:JOB.")
    ] = None,
    array: Annotated[str | None, _option("--array", "0-9[%3]", "One job per index; %3: three at once at most.")] = None,
    request_id: Annotated[str, _option("--request-id", "ID", "Submitting again with the same id adds nothing.")] = "",
    state: State = None,
    output: Output = Form.TABLE,
) -> None:
    """Submit job files, or a command after --, and print the ids.

    Options override what the files say. Nothing is submitted unless all jobs are accepted. PATH, the active Python
    environment and the like go with the job (--export), secrets do not.
    """
    given = {
        "gpus": _present(count=gpus, types=_types(gpu_types)),
        "nodes": nodes,
        "ranks": ranks,
        "name": name,
        "queue": queue,
        "user": user,
        "priority": priority,
        "model": model,
        "class": app_class,
        "steps": steps,
        "env": _env(env or []),
        "workdir": workdir and str(workdir.absolute()),
        "checkpoint": _present(dir=checkpoint_dir and str(checkpoint_dir.absolute()), grace_s=grace_s),
        "max_runtime": _number_or_text(max_runtime),
        "deadline": _number_or_text(deadline),
        "retries": retries,
        "preemptible": False if no_preempt else None,
        "min_run": _number_or_text(min_run),
        "after": _text("--after", after or [], "ids of jobs, such as 17, any:17 or 17,18"),
        "array": _text("--array", [] if array is None else [array], "indices, such as 0-9, 1,3,5-7 or 0-9%3"),
    }
    command = trailing_command(ctx)
    specs = _specs(files or [], command, _present(**given))
    request, request_id = with_environment(specs, export), request_id or os.urandom(16).hex()
    with connected(state) as client:
        ids = accepted(client, request, request_id, typed=command is not None)
    if output is Form.JSON:
        print_json({"ids": ids, "request_id": request_id})
    else:
        typer.echo("\n".join(ids))


def _text(option: str, given: list[str], expected: str) -> str | None:
    """What an option says, all times together. Every time it has to say something: a variable that is empty in
    ``--after "$id"`` would have the job start at once."""
    from trine.core.errors import InputError

    for text in given:
        if not text.strip(" ,\t\n"):
            raise InputError(option, repr(text), expected)
    return ",".join(given) or None


submit.command_options = {"cls": SubmitCommand}  # type: ignore[attr-defined]


def _by_option(sentence: str) -> str:
    """What the daemon says of a key of the request, said of the option that the user typed."""
    match = re.match(r"request: ([a-z_]+(?:\.(?:count|types|dir|grace_s))?)[^:]*: ", sentence)
    if match is None:
        return sentence
    return f"{_OPTION_OF.get(match[1], '--' + match[1].replace('_', '-'))}: {sentence[match.end() :]}"


def _specs(files: list[Path], command: list[str] | None, given: dict[str, Any]) -> list[dict[str, Any]]:
    from trine.core.errors import InputError

    if command and files:
        raise InputError("submit", f"both a command and {str(files[0])!r}", "job files, or -- and a command")
    if command:
        return [_merged(spec_of(command), given)]
    if not files:
        raise InputError("submit", "no job", "job files, or -- and a command")
    return [_merged(spec, given) for path in files for spec in _read(path)]


def spec_of(command: list[str]) -> dict[str, Any]:
    """A job of a command as it was typed here."""
    return {"run": command, "workdir": str(Path.cwd()), "gpus": {"count": 1}}


def _read(path: Path) -> list[dict[str, Any]]:
    import json

    from trine.core.errors import InputError
    from trine.inputs.job_file import read_job_file

    if not path.exists() and path.suffix not in _JOB_FILES:
        raise InputError("submit", f"no file {str(path)!r}", "job files; a command goes after --")
    run_by = _run_by(path)
    if run_by:
        how = f"trine submit -- {run_by} {path}{_unread(path)}"
        raise InputError(str(path), "a script", f"a job file (YAML); to run the script: {how}")
    return [json.loads(spec.as_json()) for spec in read_job_file(path, str(Path.cwd()))]


def _run_by(path: Path) -> str:
    """The program that runs the file if it is a script; empty if it may be a job file."""
    if path.suffix in _JOB_FILES:  # its first line may be #!/usr/bin/env -S trine submit, to YAML a comment
        return ""
    first = _head(path).partition(b"\n")[0].decode("utf-8", "replace")
    words = first[2:].split() if first.startswith("#!") else []
    names = [name for word in words if (name := word.rpartition("/")[2]) != "env" and not word.startswith("-")]
    return names[0] if names else _SCRIPTS.get(path.suffix, "")


def _unread(path: Path) -> str:
    """Users that bring a script for Slurm expect its directives to count."""
    return "; its #SBATCH lines are not read, say the same with options" if b"\n#SBATCH" in _head(path) else ""


def _head(path: Path) -> bytes:
    """The beginning of a regular file; nothing else is opened here, a pipe can be read only once."""
    if not path.is_file():
        return b""
    try:
        with path.open("rb") as file:
            return file.read(4096)
    except OSError:  # reading the job file says it better
        return b""


def _merged(spec: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """``given`` over ``spec``, key by key in mappings too."""
    return spec | {
        key: spec[key] | value if isinstance(value, dict) and key in spec else value for key, value in given.items()
    }


def with_environment(specs: list[dict[str, Any]], choice: str | None) -> dict[str, Any]:
    """The request: the jobs, with the chosen variables of this environment below their own; those of many jobs once."""
    from trine.cli.live.export import check_size, exported

    chosen = exported(choice, os.environ)
    if chosen:
        for spec in specs:
            check_size(chosen | spec.get("env", {}), choice)
    if len(specs) > 1:
        return {"jobs": specs, "env": chosen}
    env = chosen | specs[0].get("env", {})
    return specs[0] | ({"env": env} if env else {})


def accepted(client: Client, request: dict[str, Any], request_id: str, typed: bool = False) -> list[str]:
    """The ids of the jobs; where it cannot be known whether there are any, the command ends and says what to do.

    ``typed``: all that the request says was said by options."""
    from trine.client.errors import ConnectionBrokenError, NoAnswerError, RefusedError

    again = f"whether the jobs were accepted is not known; to be sure, submit again with --request-id {request_id}"
    try:
        return client.submit(request, request_id)
    except KeyboardInterrupt:
        fail(f"interrupted; {again}", 130)
    except (ConnectionBrokenError, NoAnswerError) as error:
        fail(f"{error}; {again}", 1)
    except RefusedError as error:
        if not error.outcome_unknown:
            sentence = _by_option(str(error)) if typed and error.usage else str(error)
            raise RefusedError(error.status, error.code, sentence, error.field) from None
        fail(f"the daemon lost its journal before it could answer; {again}", 1)


def _present(**values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None and value != {}}


def _types(text: str | None) -> str | list[str] | None:
    return text if text is None or text == "any" else [word.strip() for word in text.split(",")]


def _env(pairs: list[str]) -> dict[str, str]:
    from trine.core.errors import InputError

    values = {}
    for pair in pairs:
        key, sign, value = pair.partition("=")
        if not key or (not sign and key not in os.environ):
            raise InputError("--env", f"{pair!r}", "NAME=VALUE, or the NAME of a variable that is set here")
        values[key] = value if sign else os.environ[key]
    return values


def _number_or_text(text: str | None) -> float | str | None:
    """A plain number is one of seconds; the daemon reads the rest."""
    return float(text) if text and text.replace(".", "", 1).isdecimal() else text

"""``trine profile gpus`` and ``trine profile app``: measure this machine, measure a job.

Data on stdout, messages on stderr, and the job's own output with them.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

if TYPE_CHECKING:
    from trine.profile.app_run import AppRun
    from trine.profile.devices import DeviceChoice
    from trine.profile.gpu_session import OpenSession, SessionResult, SessionState

AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")]

INTERRUPTED = 130


def gpus(
    context: typer.Context,
    out: Annotated[
        Path, typer.Option("--out", help="Folder to write to, or the profile's name if it ends in .json.")
    ] = Path("trine-profile"),
    repeats: Annotated[int, typer.Option("--repeats", min=2, help="Runs of every kernel on every device.")] = 10,
    seconds: Annotated[
        float | None,
        typer.Option("--seconds", min=0.0005, max=600, help="Duration of one run; 1 on GPUs, 0.1 on cores."),
    ] = None,
    devices: Annotated[
        str, typer.Option("--devices", metavar="WHICH", help="cuda, cpu, or numbers or ids with commas between.")
    ] = "",
    node: Annotated[str, typer.Option("--node", help="Name of this machine in the records; its host name.")] = "",
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the order of measurements.")] = 0,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the session that --out holds.")] = False,
    as_json: AsJson = False,
) -> None:
    """Measure every GPU of this machine (every CPU core if it has none) and write its variability profile."""
    import socket
    from functools import partial

    from trine.cli.sim import command_line
    from trine.profile.devices import find_devices
    from trine.profile.gpu_session import RUN_S, MeasurementPlan, SessionFiles, open_session
    from trine.report.profile_page import require_page, session_page

    require_page()
    found = find_devices(node or socket.gethostname(), devices)
    _print_notes(found)
    plan = MeasurementPlan(found.devices, repeats, seconds or RUN_S[found.devices[0].kind], seed)
    measuring = open_session(plan, SessionFiles.at(out), resume)
    session = _measure(measuring)
    if not session.complete:
        kept = f"{len(session.records)} of {measuring.steps} measurements are in {measuring.files.records}"
        typer.echo(f"trine: interrupted; {kept}, and --resume goes on from there", err=True)
        raise typer.Exit(INTERRUPTED)
    _report(measuring.finish(session, partial(session_page, command=command_line(context))), as_json)


def _print_notes(found: DeviceChoice) -> None:
    for note in found.notes:
        typer.echo(note, err=True)


def _measure(measuring: OpenSession) -> SessionState:
    import time

    from trine.cli.progress_bar import ProgressBar
    from trine.profile.devices import WorkerPool

    with (
        _stop_at_interrupt() as stop,
        WorkerPool() as pool,
        ProgressBar(measuring.steps - len(measuring.taken), "measuring") as bar,
    ):
        return measuring.run(pool, time.time, bar.advance, stop)


@contextmanager
def _stop_at_interrupt() -> Iterator[Callable[[], bool]]:
    """Ctrl-C is noted and the measurement under way finished; a second one interrupts at once."""
    asked: list[int] = []

    def note(signum: int, frame: object) -> None:  # noqa: ARG001
        asked.append(signum)
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield lambda: bool(asked)
    finally:
        signal.signal(signal.SIGINT, before)


def _report(result: SessionResult, as_json: bool) -> None:
    if as_json:
        import json

        typer.echo(json.dumps(result.as_dict(), indent=1))
        return
    from trine.cli.tables import print_table

    print_table(_rows(result), numbers_from=1)
    for sentence in result.findings:
        typer.echo(sentence)
    files = result.files
    typer.echo(f"Wrote {files.profile}, {files.records} and {files.page}.", err=True)


def _rows(result: SessionResult) -> list[list[str]]:
    """A row per device: slowdown and interval by class, with its verdict where it stands out."""
    kernels = {kernel.app_class: kernel.name for kernel in result.plan.kernels}
    header = ["device", *(f"{e.app_class} {kernels[e.app_class]}" for e in result.estimates), "runs"]
    cells: dict[str, dict[str, str]] = {device.id: {} for device in result.plan.devices}
    runs: dict[str, int] = dict.fromkeys(cells, 0)
    for e in result.estimates:
        for device in e.devices:
            verdict = "" if device.verdict == "same" else f" {device.verdict}"
            cells[device.gpu][e.app_class] = f"{device.slowdown:.3f} ±{device.high / device.slowdown - 1:.1%}{verdict}"
            runs[device.gpu] = max(runs[device.gpu], device.runs)
    return [header] + [
        [gpu, *(row.get(e.app_class, "-") for e in result.estimates), str(runs[gpu])] for gpu, row in cells.items()
    ]


def app(
    command: Annotated[list[str], typer.Argument(metavar="CMD", help="The job to run, after --.", show_default=False)],
    interval: Annotated[float, typer.Option("--interval", min=0.01, help="Seconds between two samples.")] = 1.0,
    out: Annotated[Path | None, typer.Option("--out", help="JSON file for the feature row.")] = None,
    name: Annotated[str, typer.Option("--name", help="Name of the application; the program's.")] = "",
    log: Annotated[Path | None, typer.Option("--log", help="File for the job's output, in place of stderr.")] = None,
    step_pattern: Annotated[
        str, typer.Option("--step-pattern", metavar="REGEX", help="Finds step times; its first group is seconds.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Run a job and measure what kind of application it is: how busy it keeps the GPU, its memory and the clock."""
    import json

    if out is not None:
        _check_target(out)
    result = _profiled(command, name or Path(command[0]).name, interval, log, step_pattern)
    text = json.dumps(result.as_dict(), indent=1)
    if out is not None:
        from trine.core.atomic_file import write_output

        write_output(out, text + "\n")
    for line in [text] if as_json else _feature_lines(result):
        typer.echo(line)
    for note in result.usage.notes:
        typer.echo(f"note: {note}", err=True)
    if result.exit_code:
        typer.echo(f"trine: {command[0]} {result.ending}", err=True)
        raise typer.Exit(1)


def _check_target(out: Path) -> None:
    """Before the job, which may run for hours, and not after it."""
    from trine.core.errors import InputError

    if out.is_dir() or not out.parent.is_dir():
        found = "is a directory" if out.is_dir() else f"there is no directory {out.parent}"
        raise InputError(f"--out {out}", found, "the name of a file to write")


def _profiled(command: list[str], name: str, interval_s: float, log: Path | None, step_pattern: str) -> AppRun:
    import os
    import time
    from contextlib import ExitStack

    from trine.profile import steps
    from trine.profile.app_run import run_app
    from trine.profile.nvml import open_nvml
    from trine.profile.sampling import sampler_for

    pattern = steps.step_pattern(step_pattern) if step_pattern else None
    with ExitStack() as stack:
        sampler = sampler_for(stack.enter_context(open_nvml()), os.environ)
        output = None if log is None else stack.enter_context(_writable(log))
        return run_app(command, name, sampler, interval_s, time.monotonic, output, pattern)


@contextmanager
def _writable(path: Path) -> Iterator[BinaryIO]:
    from trine.core.errors import InputError

    try:
        stream = path.open("wb")
    except OSError as error:
        raise InputError(str(path), f"cannot be written ({error.strerror})", "a file for the job's output") from None
    with stream:
        yield stream


def _feature_lines(result: AppRun) -> list[str]:
    """One number a line."""
    usage = result.usage
    step = "not reported by the job" if result.step_s is None else f"{result.step_s:.4g} (median of {result.steps})"
    values = {
        "name": result.name,
        "source": usage.source,
        "compute_util": _share(usage.compute_util),
        "memory_util": _share(usage.memory_util),
        "power_w": "unknown" if usage.power_w is None else f"{usage.power_w:.1f}",
        "step_s": step,
        "seconds": f"{result.seconds:.2f}, {result.samples} samples",
        "exit_code": str(result.exit_code),
    }
    return [f"{name:<13} {value}" for name, value in values.items()]


def _share(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3f}"

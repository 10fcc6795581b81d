"""A measuring session from its plan to its files: which kernel runs on which device when, the journal of records that
survives an interrupt, the estimate, the profile and the page.

Time is passed in and nothing is printed. What the numbers mean is in ``device_effects``; how a kernel is run in
``devices``.
"""

from __future__ import annotations

import csv
import io
import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from trine.core.atomic_file import write_output
from trine.core.errors import InputError, TrineError
from trine.inputs.text_file import read_text
from trine.profile.device_effects import ClassEstimate, estimate, without_drift
from trine.profile.devices import Device
from trine.profile.kernels import KERNELS, Kernel
from trine.profile.measurements import COLUMNS, MeasurementRecord, read_records
from trine.profile.profile_json import save_profile
from trine.profile.variability_profile import build_profile

WARM_UP_S = 0.02
RUN_S = {"cpu": 0.1, "cuda": 1.0}
"""Length of a run by kind of device: a GPU needs longer until its power limit holds its clocks."""
_HEADER = ",".join(COLUMNS) + "\n"


# -- what is measured -------------------------------------------------------------------------------------------------


class Runner(Protocol):
    """Runs one kernel on one device; raises ``TrineError`` if the device cannot."""

    def measure(self, device: Device, kernel: str, seconds: float) -> float: ...


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """One measurement: the kernel, the device and the run (one run measures everything once)."""

    run: int
    device: Device
    kernel: Kernel


@dataclass(frozen=True, slots=True)
class MeasurementPlan:
    """What a session measures: every kernel on every device ``repeats`` times, ``seconds`` each."""

    devices: tuple[Device, ...]
    repeats: int
    seconds: float
    seed: int = 0
    kernels: tuple[Kernel, ...] = KERNELS

    def steps(self) -> list[PlannedRun]:
        """Run after run, so that what changes slowly changes for all devices; shuffled anew in each, so that no device
        is always measured after the same neighbour."""
        rng = random.Random(self.seed)
        pairs = [(device, kernel) for device in self.devices for kernel in self.kernels]
        return [
            PlannedRun(run, device, kernel)
            for run in range(self.repeats)
            for device, kernel in rng.sample(pairs, k=len(pairs))
        ]

    def settings(self) -> dict[str, object]:
        """What was asked for, for the page; ``devices`` with their product names."""
        return {
            "devices": [f"{d.id} ({d.name})" if d.name else d.id for d in self.devices],
            "kernels": [kernel.name for kernel in self.kernels],
            "repeats": self.repeats,
            "seconds": self.seconds,
            "seed": self.seed,
        }

    def as_dict(self) -> dict[str, object]:
        """What must be the same for a session to be resumed; more runs may be added to one."""
        return {
            "devices": [{"id": d.id, "name": d.name, "uuid": d.uuid} for d in self.devices],
            "kernels": [kernel.name for kernel in self.kernels],
            "seconds": self.seconds,
            "seed": self.seed,
        }


@dataclass(frozen=True)
class SessionState:
    """What a session has measured so far; ``failed`` says by device why it was given up."""

    records: list[MeasurementRecord]
    failed: dict[str, str]
    complete: bool


def run_session(
    plan: MeasurementPlan,
    runner: Runner,
    clock: Callable[[], float],
    keep: Callable[[MeasurementRecord], None],
    taken: Sequence[MeasurementRecord] = (),
    stop: Callable[[], bool] = lambda: False,
) -> SessionState:
    """Measure what ``taken`` does not hold yet and hand each record to ``keep`` as soon as it exists.

    A device that fails is given up; the others go on. ``clock`` gives seconds since the epoch, ``stop`` is asked
    before every measurement.
    """
    done = {(record.run, record.gpu, record.app_class) for record in taken}
    steps = [step for step in plan.steps() if (step.run, step.device.id, step.kernel.app_class) not in done]
    session = SessionState(list(taken), {}, complete=False)
    warm: set[tuple[str, str]] = set()
    for step in steps:
        if stop():
            return session
        if step.device.id not in session.failed:
            _take(step, plan, runner, clock, keep, session, warm)
    if len(session.failed) == len(plan.devices):
        raise TrineError("no device could be measured: " + "; ".join(session.failed.values()))
    return SessionState(session.records, session.failed, complete=True)


def _take(
    step: PlannedRun,
    plan: MeasurementPlan,
    runner: Runner,
    clock: Callable[[], float],
    keep: Callable[[MeasurementRecord], None],
    session: SessionState,
    warm: set[tuple[str, str]],
) -> None:
    device, kernel = step.device, step.kernel
    try:
        if (device.id, kernel.name) not in warm:
            # The first run of a kernel loads libraries and raises clocks: it is thrown away.
            runner.measure(device, kernel.name, min(WARM_UP_S, plan.seconds))
            warm.add((device.id, kernel.name))
        perf_s = runner.measure(device, kernel.name, plan.seconds)
    except TrineError as error:
        session.failed[device.id] = str(error)
        return
    record = MeasurementRecord(device.id, kernel.app_class, perf_s, step.run, clock(), device.node)
    session.records.append(record)
    keep(record)


# -- files ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SessionFiles:
    """Where a session keeps its files."""

    profile: Path
    records: Path
    settings: Path
    page: Path

    @classmethod
    def at(cls, out: Path) -> SessionFiles:
        """``out`` names the profile if it ends in .json, a folder otherwise."""
        if out.suffix == ".json" and not out.is_dir():
            stem = out.with_suffix("")
            return cls(out, *(stem.with_name(stem.name + end) for end in (".records.csv", ".session.json", ".html")))
        return cls(*(out / name for name in ("profile.json", "records.csv", "session.json", "profile.html")))


class RecordsJournal:
    """Appends records; every line is complete on disk before the next measurement starts."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def append(self, record: MeasurementRecord) -> None:
        line = io.StringIO()
        writer = csv.writer(line, lineterminator="\n")
        at = "" if record.at_s is None else repr(record.at_s)
        cells = {"gpu": record.gpu, "node": record.node, "place": record.place, "class": record.app_class}
        cells |= {"run": str(record.run), "perf_s": repr(record.perf_s), "at_s": at}
        writer.writerow([cells[column] for column in COLUMNS])
        with self._path.open("a", encoding="utf-8", newline="") as stream:
            stream.write(line.getvalue())


def _open_journal(
    files: SessionFiles, settings: dict[str, Any], resume: bool
) -> tuple[RecordsJournal, tuple[MeasurementRecord, ...]]:
    """The journal to write to and the records it already holds. ``settings`` must be those of the session resumed."""
    if resume and files.records.exists():
        _check_same(files.settings, settings)
        return RecordsJournal(files.records), _taken(files.records)
    if files.records.exists():
        expected = "a new place, or --resume to go on with that session"
        raise InputError(str(files.records), "a session's records are already there", expected)
    _create(files, settings)
    return RecordsJournal(files.records), ()


def _create(files: SessionFiles, settings: dict[str, Any]) -> None:
    try:
        files.records.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        found = f"cannot be made ({error.strerror})"
        raise InputError(str(files.records.parent), found, "a folder to write to") from None
    write_output(files.settings, json.dumps(settings, indent=2) + "\n")
    write_output(files.records, _HEADER)


def _check_same(path: Path, settings: dict[str, Any]) -> None:
    try:
        before = json.loads(read_text(path, "the settings of the session to resume"))
    except ValueError as error:
        raise InputError(str(path), f"not valid JSON ({error})", "the settings of the session to resume") from None
    for key, value in settings.items():
        found = before.get(key) if isinstance(before, dict) else None
        if found != value:
            raise InputError(str(path), f"the session was begun with {found!r}", f"the same as now, {value!r}", key)


def _taken(path: Path) -> tuple[MeasurementRecord, ...]:
    """Records so far. A last line without an end was cut off when the machine went down: it is measured again."""
    text = read_text(path, "the records of the session to resume")
    whole = text[: text.rfind("\n") + 1]
    if not whole:
        whole = _HEADER
    if whole != text:
        write_output(path, whole)
    return read_records(path).records if whole.count("\n") > 1 else ()


# -- the whole --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SessionResult:
    """A finished session and what it found."""

    plan: MeasurementPlan
    session: SessionState
    estimates: tuple[ClassEstimate, ...]
    files: SessionFiles

    @property
    def findings(self) -> list[str]:
        """One sentence per class, then one per device that failed."""
        names = {kernel.app_class: kernel.name for kernel in self.plan.kernels}
        found = [f"class {e.app_class} ({names[e.app_class]}): {e.finding()}" for e in self.estimates]
        return found + [f"given up: {sentence}" for sentence in self.session.failed.values()]

    def as_dict(self) -> dict[str, Any]:
        kernels = {kernel.app_class: kernel.name for kernel in self.plan.kernels}
        return {
            "devices": [asdict(device) for device in self.plan.devices],
            "classes": {e.app_class: {"kernel": kernels[e.app_class]} | e.as_dict() for e in self.estimates},
            "failed": self.session.failed,
            "records": len(self.session.records),
            "findings": self.findings,
            "files": {
                "profile": str(self.files.profile),
                "records": str(self.files.records),
                "page": str(self.files.page),
            },
        }


SessionPage = Callable[[str, Sequence[ClassEstimate], Sequence[MeasurementRecord], Mapping[str, object]], str]
"""Makes the page of a session: its title, what was estimated, what was measured."""


@dataclass(frozen=True)
class OpenSession:
    """A session that is open: what is to be measured, and what an earlier attempt has measured already."""

    plan: MeasurementPlan
    files: SessionFiles
    taken: tuple[MeasurementRecord, ...]
    append: Callable[[MeasurementRecord], None]

    @property
    def steps(self) -> int:
        """Measurements of the whole session."""
        return len(self.plan.devices) * len(self.plan.kernels) * self.plan.repeats

    def run(
        self,
        runner: Runner,
        clock: Callable[[], float],
        advance: Callable[[], None] = lambda: None,
        stop: Callable[[], bool] = lambda: False,
    ) -> SessionState:
        """Measure what is missing; every record is in the journal before the next is taken."""

        def keep(record: MeasurementRecord) -> None:
            self.append(record)
            advance()

        return run_session(self.plan, runner, clock, keep, self.taken, stop)

    def finish(self, session: SessionState, page: SessionPage) -> SessionResult:
        """Estimate, and write the profile and the page."""
        result = SessionResult(self.plan, session, tuple(estimate(session.records)), self.files)
        profile = build_profile(
            without_drift(session.records), sources=[self.files.records.name], notes=result.findings
        )
        save_profile(profile, self.files.profile)
        title = f"Devices of {self.plan.devices[0].node}"
        write_output(self.files.page, page(title, result.estimates, session.records, self.plan.settings()))
        return result


def open_session(plan: MeasurementPlan, files: SessionFiles, resume: bool) -> OpenSession:
    """Start a session in ``files``, or go on with the one that is there."""
    journal, taken = _open_journal(files, plan.as_dict(), resume)
    kept = tuple(record for record in taken if record.run < plan.repeats)
    return OpenSession(plan, files, kept, journal.append)

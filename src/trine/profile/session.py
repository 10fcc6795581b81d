"""A measuring session from start to files: measure, estimate, write the profile and the page. Prints nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from trine.core.atomic_file import write_output
from trine.profile.estimate import ClassEstimate, estimate, without_drift
from trine.profile.journal import SessionFiles, open_journal
from trine.profile.measure import Plan, Runner, Session, run_session
from trine.profile.plot import session_page
from trine.profile.records import MeasurementRecord
from trine.profile.variability import build_profile, save_profile


@dataclass(frozen=True)
class SessionResult:
    """A finished session and what it found."""

    plan: Plan
    session: Session
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


@dataclass(frozen=True)
class Measuring:
    """A session that is open: what is to be measured, and what an earlier attempt has measured already."""

    plan: Plan
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
    ) -> Session:
        """Measure what is missing; every record is in the journal before the next is taken."""

        def keep(record: MeasurementRecord) -> None:
            self.append(record)
            advance()

        return run_session(self.plan, runner, clock, keep, self.taken, stop)

    def finish(self, session: Session) -> SessionResult:
        """Estimate, and write the profile and the page."""
        result = SessionResult(self.plan, session, tuple(estimate(session.records)), self.files)
        profile = build_profile(
            without_drift(session.records), sources=[self.files.records.name], notes=result.findings
        )
        save_profile(profile, self.files.profile)
        title = f"Devices of {self.plan.devices[0].node}"
        write_output(self.files.page, session_page(title, result.estimates, session.records))
        return result


def open_session(plan: Plan, files: SessionFiles, resume: bool) -> Measuring:
    """Start a session in ``files``, or go on with the one that is there."""
    journal, taken = open_journal(files, plan.as_dict(), resume)
    kept = tuple(record for record in taken if record.run < plan.repeats)
    return Measuring(plan, files, kept, journal.append)

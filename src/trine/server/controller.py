"""The live scheduler without its surroundings: requests and news in, records with orders out. No clock, no I/O.

Each method changes state and engine together and returns the record to be written; orders are carried out only once
their record is durable. ``again`` repeats a record, so that a journal can be decided a second time and compared.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

from trine.core.cluster import Cluster
from trine.core.errors import InputError, TrineError
from trine.engine import events as ev
from trine.engine.engine import Engine
from trine.engine.resume import enter
from trine.inputs.job_spec import JobSpec
from trine.server import containment
from trine.server import records as rec
from trine.server.build import (
    KNOWN,
    Model,
    build_engine,
    known_speeds,
    min_run_s,
    sound_job,
)
from trine.server.engine_adapter import EngineAdapter
from trine.server.live_job import LiveJob, measured_s
from trine.server.state import OF_PLACEMENT, LiveState

_REBUILT = (rec.Configured, rec.ModelRefined, rec.ClusterChanged, rec.QuotasChanged, rec.SetAside, rec.FellBack)
"""Records after which the engine is built anew."""
_UNSOUND = "Its numbers make no sense to the performance model, so that no decision can be made about it."


class Controller:
    """State and engine, always in step."""

    def __init__(self, state: LiveState, model: Model) -> None:
        self.state = state
        self.model = model
        self._adapter: EngineAdapter | None = None
        self.problems: list[str] = []
        """Errors of ours, or of a policy's, that were contained; emptied by the caller that reports them."""
        self._speeds = [0, 0]
        """What the engine was built with; see ``build.known_speeds``."""
        self._links_shared_s: dict[str, float] = {}
        """Until when other jobs took bandwidth from a job, by job id; on record with what is heard of it."""
        self._links_changed_s: dict[str, float] = {}
        """When the bandwidth that others leave a job last changed."""

    @property
    def adapter(self) -> EngineAdapter:
        """The engine with the numbers of its jobs; there is one as soon as the cluster is known."""
        assert self._adapter is not None, "the controller was not configured yet"
        return self._adapter

    @property
    def deciding(self) -> Engine:
        return self.adapter.engine

    @property
    def job_indices(self) -> dict[str, int]:
        """Number of each live job in the engine, by its id."""
        return self.adapter.job_indices

    # -- requests ------------------------------------------------------------------------------------------------

    def configure(
        self,
        now: float,
        version: str,
        cluster: Cluster,
        policy: str,
        placement: str,
        settings: dict[str, Any],
        round_s: float = 60.0,
        sharing: rec.Sharing = "user",
        clock: dict[str, Any] | None = None,
        attempts: dict[str, int] | None = None,
        adopted: tuple[rec.StartOrder, ...] = (),
    ) -> rec.Record:
        """The cluster and how it is scheduled, from now on; with what was found on disk that is not on record."""
        body, found = rec.cluster_to_record(cluster), rec.Orders(adopted)
        known = (now, version, body, policy, placement, settings, round_s, sharing, clock, attempts or {})
        return self._enter(rec.Configured(*known, self.model.quotas_record(), found))

    def change_cluster(self, now: float, cluster: Cluster) -> rec.Record:
        """Nodes joined or left while the daemon runs."""
        return self._enter(rec.ClusterChanged(now, rec.cluster_to_record(cluster)))

    def submit(
        self,
        now: float,
        weight: float,
        spec: JobSpec,
        request_id: str = "",
        digest: str = "",
        array_id: str = "",
        array_index: int | None = None,
        external: str = "",
    ) -> rec.Accepted:
        """Take in a job whose user and queue are filled in; whether it can ever run was checked before."""
        job_id, asked = str(self.state.next_id), (request_id, digest, array_id, array_index, external)
        record = rec.Accepted(now, job_id, spec.user, spec.queue, weight, spec, *asked)
        self._enter(record)
        return record

    def ask(self, now: float, job_id: str, verb: str, by: str) -> rec.Record:
        """Cancel, hold or release a job that is still live, or stop it for good because its time is over."""
        return self._enter(rec.ActionRequested(now, job_id, verb, by))

    def set_priority(self, now: float, job_id: str, priority: float, by: str) -> rec.Record:
        """A job that is still live is ranked by another priority from now on."""
        return self._enter(rec.PriorityChanged(now, job_id, priority, by))

    def set_quotas(
        self, now: float, changes: dict[str, int | None], by: str, as_configured: tuple[str, ...] = ()
    ) -> rec.Record:
        """Users (``user:NAME``) and queues (``queue:NAME``) may hold so many GPUs from now on; ``None``: no limit."""
        return self._enter(rec.QuotasChanged(now, changes, by, as_configured))

    def change_node(
        self, now: float, node: str, state: str, reason: str, by: str, gpus: tuple[int, ...] = ()
    ) -> rec.Record:
        """A node, or only the GPUs of it with these indices, is drained, withheld, lost or comes back."""
        return self._enter(rec.NodeChanged(now, node, state, rec.valid_text(reason), by, gpus))

    # -- deciding, whatever happens --------------------------------------------------------------------------------

    def decide(self, now: float, heard: Sequence[rec.Heard] = (), fill: bool = False) -> list[rec.Record]:
        """As ``tick``, but no job and no policy can keep it from deciding for the others.

        A job that a round cannot be decided with is set aside; in the place of a policy that fails for all jobs comes
        FIFO. What was done about it comes first in the answer."""
        done: list[rec.Record] = [self._enter(rec.SetAside(now, job, _UNSOUND)) for job in self._unsound()]
        for tried in range(containment.MAX_ASIDE + 3):
            try:
                return [*done, self.tick(now, heard, fill)]
            except containment.FAULTS as error:
                if tried < containment.MAX_ASIDE:
                    remedy = self._remedy(now, heard, fill, error)
                else:  # it is not a few jobs: finding all of them would hold up the round
                    self.rebuild(now)
                    remedy = self._fall_back(now, error)
            if remedy is None:
                break
            done.append(remedy)
        self.rebuild(now)
        return done

    def _unsound(self) -> list[str]:
        live, engine = self.state.live, self.deciding
        if not engine.aside:
            return []
        return [
            job_id
            for job_id, job_index in self.job_indices.items()
            if job_index in engine.aside and (job := live.get(job_id)) is not None and not job.aside
        ]

    def _remedy(self, now: float, heard: Sequence[rec.Heard], fill: bool, error: BaseException) -> rec.Record | None:
        """What makes the next try at a failed round more likely to succeed; ``None`` if nothing is left to try."""
        self.problems.append(f"a round failed: {_described(error)}")
        self.rebuild(now)
        jobs = [job.id for job in self.state.live.values() if not job.aside and job.state != "held"]

        def trial(only: Collection[str], harmless: bool) -> BaseException | None:
            return self._trial(now, heard, fill, only, harmless)

        found = containment.culprit(jobs, trial)
        if found is not None:
            reason = f"No decision can be made about it: the policy {self.state.policy} fails ({_described(error)})."
            return self._enter(rec.SetAside(now, found, reason))
        return self._fall_back(now, error)

    def _trial(
        self, now: float, heard: Sequence[rec.Heard], fill: bool, only: Collection[str], harmless: bool
    ) -> BaseException | None:
        try:
            copy = EngineAdapter(self.state, *build_engine(self.state, self.model, now, only))
            if harmless:
                containment.submit_harmless(copy.engine, now)
            news = [each for each in heard if each.job in only]
            record = rec.Ticked(now, fill, tuple(news))
            decided = [decision for event in copy.events_of(record) for decision in copy.engine.handle(event)]
            if harmless:  # it is on no record, so that nothing can be ordered about it
                json.dumps([copy.engine.reason(decision).sentence for decision in decided])
            orders = rec.Orders() if harmless else copy.orders_of(decided, record)
            self._complete(replace(record, orders=orders), copy.engine)
        except containment.FAULTS as error:
            return error
        return None

    def _fall_back(self, now: float, error: BaseException) -> rec.Record | None:
        """FIFO with the placement as configured, then with the plainest one; ``None`` if both were tried."""
        record = self._next_fallback(now, error)
        return None if record is None else self._enter(record)

    def _next_fallback(self, now: float, error: BaseException) -> rec.FellBack | None:
        state, plain = self.state, (containment.FALLBACK_POLICY, containment.FALLBACK_PLACEMENT)
        used = (state.policy, state.placement)
        if state.fallback is not None:
            used = (state.fallback.policy, state.fallback.placement)
        for policy, placement in dict.fromkeys([(plain[0], state.placement), plain]):
            if (policy, placement) == used or (used[0] == plain[0] and placement != plain[1]):
                continue
            what = f"policy {state.policy} with placement {state.placement} fails for all jobs"
            reason = f"The {what} ({_described(error)}); {policy} with {placement} is used until the next start."
            return rec.FellBack(now, policy, placement, reason)
        return None

    # -- time and news -------------------------------------------------------------------------------------------

    def tick(self, now: float, heard: Iterable[rec.Heard] = (), fill: bool = False) -> rec.Ticked:
        """Decide a round, or (``fill``) only what to do with GPUs that no job holds."""
        self._note_shared_links(now)
        record = self._enter(rec.Ticked(now, fill, tuple(map(self.marked, heard))))
        assert isinstance(record, rec.Ticked)
        return record

    def _note_shared_links(self, now: float) -> None:
        """Until now some jobs had less bandwidth than alone. Called before anything changes that."""
        engine = self.deciding
        if engine.traffic is None:
            return
        for job_index in engine.traffic.slowed_jobs():
            self._links_shared_s[engine.table.jobs[job_index].id] = now

    def _doubt_links(self, now: float) -> None:
        """Of the time before the daemon started it is not known which links were shared."""
        engine = self.deciding
        if engine.traffic is not None:
            self._links_shared_s = {
                job_id: now for job_id, job_index in self.job_indices.items() if job_index in engine.traffic
            }

    def _note_changed_links(self, now: float) -> None:
        """Some jobs have more or less bandwidth from now on. Rates are in the table: nothing here counts work."""
        engine = self.deciding
        if engine.traffic is not None:
            changed = [job_index for job_index in engine.rerated if job_index in engine.traffic]
            self._links_changed_s |= {engine.table.jobs[job_index].id: now for job_index in changed}
        engine.rerated.clear()

    def marked(self, heard: rec.Heard) -> rec.Heard:
        """What was heard, with whether others used the job's links meanwhile."""
        shared = self._links_shared_s.get(heard.job, -math.inf) > heard.at_s - heard.seconds
        changed = self._links_changed_s.get(heard.job, -math.inf) > heard.at_s - measured_s(heard)
        return replace(heard, links_shared=shared, links_changed=changed) if shared or changed else heard

    @property
    def wakes_s(self) -> float:
        """When policy or placement would decide otherwise although nothing happens; never, if they cannot say."""
        return _time_s(lambda: self.deciding.wakes_s)

    @property
    def placement_wakes_s(self) -> float:
        """The same for the placement alone: a job that it refused may have GPUs then, between rounds as well."""
        return _time_s(lambda: self.deciding.placement_wakes_s)

    def refine(self, now: float) -> rec.Record | None:
        """Rebuild the engine if what was observed changed the model of the cluster noticeably."""
        learnt = self.state.observations
        if learnt is None or not learnt.changed_materially_since(self._speeds[1]):
            return None
        return self._enter(rec.ModelRefined(now))

    def started(self, now: float, job_id: str, epoch: int) -> rec.Record | None:
        """The processes of a start are up; ``None`` if that is old news."""
        job = self.state.live.get(job_id)
        if job is None or job.epoch != epoch or job.state not in ("starting", "stopping") or self.adapter.runs(job):
            return None
        return self._enter(rec.StartReported(now, job_id, epoch))

    def exited(
        self, now: float, job_id: str, epoch: int, outcome: str, rc: int | None, step: float | None, detail: str = ""
    ) -> rec.Record | None:
        """The processes of a start are gone; ``None`` if that is old news."""
        job = self.state.live.get(job_id)
        if job is None or job.epoch != epoch or not job.holds_gpus:
            return None
        return self._enter(rec.ExitReported(now, job_id, epoch, outcome, rc, step, rec.valid_text(detail)))

    # -- one record at a time ------------------------------------------------------------------------------------

    def again(self, record: rec.Record) -> rec.Record:
        """The record as it would be written if it happened now, with the orders decided anew."""
        return self._enter(_without_orders(record))

    def rebuild(self, now: float, refuses: bool = False) -> None:
        """A new engine from the state as it is; without the policy's accounts if it cannot go on from them, and
        without the policy if it cannot even begin.

        Neither is put on record: the next start tries again with what is configured. ``refuses`` settings that make
        no sense, in a sentence; later on, a plug-in file that was changed meanwhile is one more that cannot begin."""
        while True:
            try:
                self._adapter = EngineAdapter(self.state, *build_engine(self.state, self.model, now))
                self.state.take_followers()  # the engine was built with what they are now
                break
            except containment.FAULTS as error:
                if refuses and isinstance(error, InputError):
                    raise
                self._give_up(now, error)
        self._speeds = known_speeds(self.state, self.model)

    def _give_up(self, now: float, error: BaseException) -> None:
        """Do without what an engine could not be built with; raises if nothing is left to do without."""
        if self.state.accounts:
            self.problems.append(f"the accounts of policy and placement cannot be restored: {_described(error)}")
            self.state.accounts = {}
            return
        fallback = self._next_fallback(now, error)
        if fallback is None:
            raise error
        self.problems.append(fallback.reason)
        self.state.fallback = fallback

    def _enter(self, record: rec.Record) -> rec.Record:
        """Hand the record to the engine, note what it decides, and bring the state up to date with both."""
        if isinstance(record, _REBUILT):
            self.state.apply(record)
            self.rebuild(record.at_s, refuses=isinstance(record, rec.Configured))
            if isinstance(record, rec.Configured | rec.ClusterChanged):
                self._doubt_links(record.at_s)
            return record
        orders = self._decided(record)
        full = _with_orders(record, orders or rec.Orders())
        if isinstance(full, rec.Ticked):
            full = self._complete(full, self.deciding)
        self.state.apply(full)
        if orders is None:
            self.rebuild(record.at_s)
        elif isinstance(record, rec.Accepted):
            self._admit(record)
        elif isinstance(record, rec.ExitReported) and record.job in self.state.live:
            self._protect(self.state.live[record.job])
        self._follow_ends(record.at_s)
        if isinstance(record, rec.ExitReported):
            self._links_shared_s.pop(record.job, None)
            self._links_changed_s.pop(record.job, None)
        return full

    def _decided(self, record: rec.Record) -> rec.Orders | None:
        """What the engine decides on a record; ``None`` if it failed, and has to be built anew.

        What has happened has happened, whatever the engine makes of it: only a round may fail as a whole."""
        if isinstance(record, rec.Accepted):
            return rec.Orders()
        try:
            self._note_shared_links(record.at_s)
            decided = [decision for event in self.adapter.events_of(record) for decision in self.deciding.handle(event)]
            self.deciding.settle_speeds(record.at_s)
            self._note_changed_links(record.at_s)
            return self.adapter.orders_of(decided, record)
        except containment.FAULTS as error:
            if isinstance(record, rec.Ticked):
                raise
            self.problems.append(f"record {record.kind}: {_described(error)}")
            return None

    def _follow_ends(self, now: float) -> None:
        """Jobs that waited for others to end stand in line now, or never will."""
        try:
            for event in self.adapter.events_of_ends(now):
                self.deciding.handle(event)
        except containment.FAULTS as error:
            self.problems.append(f"jobs that waited for others: {_described(error)}")
            self.rebuild(now)

    def _protect(self, job: LiveJob) -> None:
        """How long the next start may not be stopped for others, after one that was in vain."""
        job_index, table, least_s = self.job_indices[job.id], self.deciding.table, min_run_s(job)
        if least_s > 0:
            table.min_run_s[job_index] = least_s
        else:
            table.min_run_s.pop(job_index, None)

    def _complete(self, record: rec.Ticked, engine: Engine) -> rec.Ticked:
        """The round with what it changed in the accounts; fails if a plug-in made it unfit for the journal."""
        full = replace(record, accounts=self._accounts(record.at_s, engine))
        if self._has_plug_ins:
            json.dumps(rec.to_body(full))
        return full

    @property
    def _has_plug_ins(self) -> bool:
        """The policy or the placement comes from a file: that its accounts can be written down is not tested."""
        inner = str(self.state.settings.get("inner", ""))  # of a placement around another
        return any(".py" in name for name in (self.state.policy, self.state.placement, inner))

    def _accounts(self, now: float, engine: Engine) -> dict[str, Any]:
        """What the round changed in the accounts of policy and placement, against those on record."""
        known, kept = self.state.accounts, engine.policy.state(engine.view(now))
        if kept:
            kept = kept | {KNOWN: self._speeds}
        placed = engine.placement.state()
        if placed:
            kept = kept | {f"{OF_PLACEMENT}{name}": value for name, value in placed.items()}
        if self._has_plug_ins:
            kept = json.loads(json.dumps(kept))
        changed = {name: value for name, value in kept.items() if known.get(name) != value}
        return changed | dict.fromkeys(known.keys() - kept.keys())

    def _admit(self, record: rec.Accepted) -> None:
        job = self.state.jobs[record.job]
        known = sound_job(job, self.deciding.perf, self.state.sharing)
        if known is None:
            self.rebuild(record.at_s)
            return
        self.job_indices[record.job] = job_index = enter(self.deciding, record.at_s, known)
        self.deciding.reported.add(job_index)  # a live job may come back with less than it once reported
        if job.blocked:
            self.deciding.handle(ev.Held(record.at_s, job_index))


def _described(error: BaseException) -> str:
    """An error in one line."""
    text = rec.valid_text(" ".join(str(error).split()))[:300]
    return text if isinstance(error, TrineError) and text else f"{type(error).__name__}: {text}".rstrip(": ")


def _with_orders(record: rec.Record, orders: rec.Orders) -> rec.Record:
    if not orders and not record.orders:
        return record
    return replace(record, orders=orders)


def _time_s(ask: Callable[[], float]) -> float:
    """What a plug-in says about a time; never, if it fails or says what is no number."""
    try:
        due_s = float(ask())
    except containment.FAULTS:
        return math.inf
    return math.inf if math.isnan(due_s) else due_s


def _without_orders(record: rec.Record) -> rec.Record:
    if isinstance(record, rec.Configured):
        return record  # what was found is not decided
    bare = _with_orders(record, rec.Orders())
    return replace(bare, accounts={}) if isinstance(bare, rec.Ticked) else bare

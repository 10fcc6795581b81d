"""The Ray executor: one placement group per lease and one actor per node of it, which is the parent of the part there.
Ray is asked by a thread of its own; what has started and how it ended is read from the files of the attempt, which the
parts write and this executor merges.

Which calls of Ray are made for that is in ``driver``; which job goes where is decided elsewhere."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trine.core.cluster import Cluster
from trine.core.errors import InputError
from trine.executor.attempt import rundir
from trine.executor.attempt.heartbeat import Silence
from trine.executor.attempt.leader import all_up, conclude, merged_end, write_end
from trine.executor.attempt.shared_dir import KILLED_RC, SharedDirExecutor, Times
from trine.executor.attempt.spec import boot
from trine.executor.base import AttemptExited, Handle, LaunchFailed, NodeInfo
from trine.executor.ray.attempt import RayAttempt, group_name, handle_of
from trine.executor.ray.connection import RayConnection, RayRefused, RayUnreachable
from trine.executor.ray.inventory import Naming, Occupancy, RayNode, described_nodes, parse_nodes


@dataclass(frozen=True, slots=True)
class Wanted:
    """How nodes are identified, and what jobs need there besides GPUs."""

    naming: Naming
    described: Cluster | None = None
    """Nodes that it does not name stay out."""
    cpus_per_gpu: float = 0.0
    python: str = ""
    """On the nodes; empty: the one that runs this."""
    interface: str = ""


_FORGOTTEN = "Ray knows nothing of it any more"
Answer = dict[str, Any]
"""Of ``driver.Driver.do_ask``."""


class RayExecutor(SharedDirExecutor[RayAttempt, Answer]):
    """Runs jobs through a ``RayConnection``; takes up again what runs in ``state_dir``, which all nodes must see."""

    engine = "Ray"

    def __init__(
        self,
        state_dir: str | Path,
        nodes: Sequence[NodeInfo],
        connection: RayConnection,
        state_id: str,
        times: Times,
        wanted: Wanted,
        *,
        environ: Mapping[str, str] = os.environ,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(state_dir, nodes, times, environ=environ, clock=clock)
        self._connection, self._state_id, self._wanted = connection, state_id, wanted
        self._ray_nodes: dict[str, RayNode] = {}
        self._occupancy = Occupancy()
        self._open()

    def close(self) -> None:
        self._connection.close()
        super().close()
        self._connection.close()  # a last question may have started it again

    @property
    def driver_pid(self) -> int:
        """The process that talks to Ray now, 0 if there is none."""
        return self._connection.pid

    def _new_attempt(self, handle: Handle) -> RayAttempt:
        return RayAttempt(handle, self._state.run_dir(handle), ask_first_s=time.monotonic())

    def _take_up(self, attempt: RayAttempt) -> None:
        super()._take_up(attempt)
        group = group_name(self._state_id, attempt.handle)
        attempt.actors = [f"{group}/{node}" for node, _ in attempt.spec.get("placement", ())]
        attempt.silence = Silence(str(attempt.run_dir), len(attempt.actors))

    def _launched(self, attempt: RayAttempt) -> None:
        if attempt.known and not self._away:
            self._start(attempt)

    # -- requests to Ray ----------------------------------------------------------------------------------------------

    def _start(self, attempt: RayAttempt) -> None:
        attempt.starting = True
        self._order(lambda: self._start_now(attempt))

    def _start_now(self, attempt: RayAttempt) -> None:
        """Nothing is waited for here: a group waits until others are released, which is an order like this one."""
        try:
            if not self._ray_nodes:
                self._note_ray_nodes(self._connection.call("ask", prefix=self._prefix))
            parts = self._parts(attempt)
        except (RayRefused, OSError) as error:
            self._refused(attempt, str(error))
            return
        except RayUnreachable:
            self._unanswered(attempt)
            raise
        group, place = group_name(self._state_id, attempt.handle), str(attempt.run_dir)
        answer = self._connection.post("start", group=group, parts=parts, directory=place)
        answer.add_done_callback(lambda done: self._start_answered(attempt, done))

    def _parts(self, attempt: RayAttempt) -> list[dict[str, Any]]:
        """What is to run where, for the driver; where the ranks meet is added to what the parts read."""
        placement = attempt.spec["placement"]
        for node, _ in placement:
            if node not in self._ray_nodes or not self._ray_nodes[node].alive:
                raise RayRefused(f"node {node} is not alive in Ray")
        attempt.spec["addresses"] = {node: self._ray_nodes[node].address for node, _ in placement}
        attempt.spec["interface"] = self._wanted.interface
        rundir.write_json(str(attempt.run_dir / rundir.SPEC), attempt.spec)
        return [
            {
                "actor": actor,
                "node": self._ray_nodes[node].id,
                "gpus": len(gpus),
                "cpus": self._wanted.cpus_per_gpu * len(gpus),
                "command": boot("trine.executor.attempt.part", self._wanted.python, str(attempt.run_dir), node),
                "log": str(attempt.run_dir / rundir.SUPERVISOR_LOG),
            }
            for actor, (node, gpus) in zip(attempt.actors, placement, strict=True)
        ]

    def _start_answered(self, attempt: RayAttempt, answer: Future[Any]) -> None:
        """In the thread that reads answers."""
        error = answer.exception()
        if error is None:
            with self._lock:
                attempt.starting, attempt.submitted, attempt.ask_first_s = False, True, time.monotonic()
        elif isinstance(error, RayUnreachable):
            self._unanswered(attempt)
        else:
            self._refused(attempt, str(error))
        self._look.set()

    def _unanswered(self, attempt: RayAttempt) -> None:
        """Whether it was started is to be asked."""
        with self._lock:
            attempt.starting, attempt.ask_first_s = False, time.monotonic()

    def _refused(self, attempt: RayAttempt, why: str) -> None:
        with self._lock:
            attempt.starting, attempt.ask_first_s = False, time.monotonic()
            if not attempt.ended:
                self._withdraw(attempt, f"Ray could not start it: {why}")

    def _release(self, handle: Handle, actors: Sequence[str]) -> None:
        group = group_name(self._state_id, handle)
        self._order(lambda: self._connection.call("release", group=group, actors=list(actors)))

    # -- what Ray says ------------------------------------------------------------------------------------------------

    @property
    def _prefix(self) -> str:
        return f"{self._state_id}/"

    def _question(self, running: Sequence[RayAttempt]) -> Answer:  # noqa: ARG002 - Ray names them all
        answer: Answer = self._connection.call("ask", prefix=self._prefix)
        return answer

    def _answered(self, answer: Answer, asked_s: float) -> None:
        actors = frozenset(answer["actors"])
        for attempt in self._running():
            if attempt.known:
                attempt.note(answer["groups"].get(group_name(self._state_id, attempt.handle), ""), actors, asked_s)
        for group in answer["groups"]:
            handle = handle_of(group)
            if handle is not None and ((known := self._attempts.get(handle)) is None or known.ended):
                self._release(handle, [name for name in actors if name.startswith(f"{group}/")])
        self._note_ray_nodes(answer)
        held = {place for attempt in self._running() for place in attempt.gpus}
        self._note_nodes(self._occupancy.infos(list(self._ray_nodes.values()), held))

    def _note_ray_nodes(self, answer: Answer) -> None:
        try:
            nodes = parse_nodes(answer["nodes"], self._wanted.naming, self._ray_nodes)
        except InputError as error:  # two of one name, since the daemon started
            raise RayRefused(str(error)) from None
        if self._wanted.described is not None:
            nodes = described_nodes(nodes, self._wanted.described)
        self._ray_nodes = {node.name: node for node in nodes}

    # -- what the files say -------------------------------------------------------------------------------------------

    def _follow(self, attempt: RayAttempt) -> None:
        self._merge(attempt)
        self._report_start(attempt)
        if attempt.started:
            self._report_progress(attempt)
        if (end := attempt.end()) is not None:
            self._end(attempt, end)
        elif not self._away and self._asked_s > attempt.ask_first_s:
            self._follow_unended(attempt)

    def _merge(self, attempt: RayAttempt) -> None:
        """What the parts say, as one start and one end."""
        run_dir = str(attempt.run_dir)
        if not attempt.started and all_up(run_dir, attempt.spec) and attempt.start() is None:
            rundir.append_status(run_dir, t=self._clock(), ev="started")
        if attempt.read(rundir.EXIT) is None and (end := merged_end(run_dir, attempt.spec)) is not None:
            write_end(run_dir, end)

    def _end(self, attempt: RayAttempt, end: AttemptExited | LaunchFailed) -> None:
        super()._end(attempt, end)
        self._release(attempt.handle, attempt.actors)

    def _follow_unended(self, attempt: RayAttempt) -> None:
        """What is to be done about an attempt whose end is not on record."""
        now_s, begun = time.monotonic(), attempt.begun()
        if attempt.requested and not any(begun):
            self._withdraw(attempt, "stopped before it started")
        elif attempt.pending_from_s is not None and now_s - attempt.pending_from_s > self._times.pending_s:
            self._withdraw(attempt, f"Ray kept it waiting for {now_s - attempt.pending_from_s:.0f} s")
        elif attempt.starting:
            return
        elif not attempt.submitted and not all(begun) and (attempt.state or not any(begun)):
            self._start(attempt)  # what is there already is found by its name
        elif attempt.abandoned():
            self._follow_over(attempt, now_s, "Ray lost an actor of it" if attempt.state else _FORGOTTEN)
        elif why := attempt.why_silent():
            self._follow_over(attempt, now_s, why)
        else:
            attempt.submitted, attempt.over_from_s = True, None
            if now_s >= attempt.cancel_due_s:
                attempt.ask_first_s = now_s
                self._order(lambda: self._connection.call("kill", actors=attempt.actors))

    def _withdraw(self, attempt: RayAttempt, why: str) -> None:
        """Keep it from starting. What of it began nevertheless stops as if a part of it had failed."""
        end = conclude(str(attempt.run_dir), attempt.spec, why)
        if end is None:
            rundir.claim(str(attempt.run_dir), {"rank": -1, "rc": KILLED_RC}, rundir.HALT)
        elif end["kind"] == "unlaunched" and attempt.requested:
            self._stopped_before_start(attempt)
        else:
            write_end(str(attempt.run_dir), end)
            self._look.set()

    def _follow_over(self, attempt: RayAttempt, now_s: float, why: str) -> None:
        """Ray has lost an actor, or all of it; or a part is silent. A part without its actor notices and leaves, so
        must the others; one that is not heard of is lost when its lease and grace are over: whatever Ray says of its
        node, it may still run."""
        if attempt.over_from_s is None:
            attempt.over_from_s = now_s
        if not self._is_given_up(attempt):
            return
        if not attempt.requested:
            rundir.claim(str(attempt.run_dir), {"rank": -1, "rc": KILLED_RC}, rundir.HALT)
        end = conclude(str(attempt.run_dir), attempt.spec, why)
        if end is None and self._fences.over(attempt.handle):
            end = {"kind": "lost", "rc": KILLED_RC, "reason": why}
        if end is not None:
            write_end(str(attempt.run_dir), end)
            self._look.set()

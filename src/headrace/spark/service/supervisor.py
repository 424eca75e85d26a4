"""Driver: runs the pipelines that the cluster knows on this host, each in a process of its own, as `keeper` decides.

One thread that asks, decides and acts in turns. It may be held up by a broker for seconds: what must not wait (the end of a run whose
lease is over) is in the run's own process (`leash`).
"""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.pipelines import Hold, Submitted, encode, lease_key, run_key
from headrace.spark.connection import ClusterAccess
from headrace.spark.producer import Producer
from headrace.spark.service.child import ChildProcess
from headrace.spark.service.effects import Effect, Post, Seen, Start, Terminate, Who
from headrace.spark.service.keeper import Keeper
from headrace.spark.service.leash import steady_s
from headrace.spark.service.metrics import exposition
from headrace.spark.service.store import Conflict, Rows, Store, is_fenced
from headrace.spark.sync_client import SyncClient, pause

TURN_S = 0.3
GOODBYE_S = 15.0
"""When a supervisor ends and no broker hears it, the others wait for the lease instead."""
_AWAY = {ErrorKind.NETWORK_EXCEPTION, ErrorKind.BROKER_NOT_AVAILABLE, ErrorKind.REQUEST_TIMED_OUT}


class PipelineSupervisor:
    def __init__(
        self,
        access: ClusterAccess,
        work: Path,
        *,
        limit: int = 64,
        tell: Callable[[str], None] = lambda text: None,
        command: Sequence[str] | None = None,
    ) -> None:
        """`limit`: so many pipelines at a time at most. `command`: what starts the command line, when not this Python."""
        self.me = Who(uuid.uuid4().hex, socket.gethostname(), os.getpid())
        self._client = SyncClient(access)
        self._store = Store(self._client)
        self._work = work
        self._limit = limit
        self._tell = tell
        self._command = command
        self._keepers: dict[str, Keeper] = {}
        self._children: dict[str, ChildProcess] = {}
        self._spoke: dict[str, int] = {}
        self._producers: dict[str, Producer] = {}
        self._fences: dict[str, int] = {}
        self._complaints: dict[str, ErrorKind] = {}
        self._known: list[tuple[Submitted, Hold | None]] = []
        self._is_away = False
        self._is_stopping = False

    def stop(self) -> None:
        """End every run, then `run`. From a signal's handler too: no lock is taken."""
        self._is_stopping = True

    def run(self) -> None:
        """Until somebody calls `stop` and every run has ended."""
        alone = 0.0
        try:
            while True:
                self.turn()
                if self._is_stopping and not self._children:
                    alone = alone or steady_s()
                    is_said = all(keeper.is_done for keeper in self._keepers.values())
                    if is_said or steady_s() - alone > GOODBYE_S:
                        return
                pause(TURN_S)
        finally:
            for child in self._children.values():
                child.kill()
            self._client.close()

    def exposition(self) -> str:
        """As of the last turn; asked by another thread."""
        return exposition(self._known, _wall_ms())

    def turn(self) -> None:
        self._hear()
        try:
            self._store.follow()
            self._reached()
        except HeadraceError as problem:
            self._missed(problem)
        self._known = [
            (definition, self._store.hold(name))
            for name in self._store.names()
            if (definition := self._store.definition(name)) is not None
        ]
        names = {*(definition.name for definition, _ in self._known), *self._keepers}
        for name in sorted(names):
            keeper = self._keepers.get(name) or Keeper(name, self.me)
            self._keepers[name] = keeper
            self._work_on(keeper)
            if name not in self._children and keeper.is_done and self._store.definition(name) is None:
                del self._keepers[name]
                self._producers.pop(name, None)
                self._fences.pop(name, None)

    def _reached(self) -> None:
        if self._is_away:
            self._tell("the broker answers again")
        self._is_away = False

    def _missed(self, problem: HeadraceError) -> None:
        if not self._is_away:
            self._tell(f"no broker answers; going on as soon as one does: {problem.detail}")
        self._is_away = True

    def _complain(self, name: str, problem: HeadraceError) -> None:
        """Once for each kind of trouble: it comes back at every turn."""
        if self._complaints.get(name) != problem.kind:
            self._complaints[name] = problem.kind
            self._tell(f"{name} can't be held: {problem.detail}. {problem.hint}")

    def _hear(self) -> None:
        """What the runs say, and which of them are over."""
        for name, child in list(self._children.items()):
            keeper = self._keepers[name]
            code = child.ended()
            if code is not None:
                del self._children[name]
                keeper.ended(code, child.told(), child.tail(), steady_s(), _wall_ms())
                self._tell(f"{name}: run {keeper.hold.run} has ended ({keeper.hold.state})")
                continue
            spoke = child.spoke_ns()
            if spoke != self._spoke.get(name):
                self._spoke[name] = spoke
                keeper.heard(child.told(), steady_s(), _wall_ms())
            child.cut_log()

    def _work_on(self, keeper: Keeper) -> None:
        name = keeper.name
        hold = self._store.hold(name)
        last = self._store.run(name, hold.run) if hold is not None else None
        seen = Seen(self._store.definition(name), hold, last)
        load = sum(other.is_ours for other in self._keepers.values())
        is_full = load >= self._limit and not keeper.is_ours
        effects = keeper.look(seen, steady_s(), _wall_ms(), load=load, is_ending=self._is_stopping or is_full)
        for effect in effects:
            self._do(keeper, effect)

    def _do(self, keeper: Keeper, effect: Effect) -> None:
        child = self._children.get(keeper.name)
        if isinstance(effect, Post):
            if not self._is_away:
                self._post(keeper, effect)
        elif isinstance(effect, Start):
            self._start(keeper, effect)
        elif child is not None:
            child.terminate() if isinstance(effect, Terminate) else child.kill()

    def _start(self, keeper: Keeper, start: Start) -> None:
        command: dict[str, Any] = {} if self._command is None else {"command": self._command}
        try:
            child = ChildProcess(
                self._work,
                start.definition,
                start.number,
                state_kept=start.state_kept,
                until=keeper.leash,
                fence=self._fences[keeper.name],
                **command,
            )
        except OSError as problem:
            keeper.started(start, steady_s(), _wall_ms(), 0, "")
            keeper.ended(1, {"error": f"the run could not be started: {problem}"}, "", steady_s(), _wall_ms())
            return
        self._children[keeper.name] = child
        self._spoke.pop(keeper.name, None)
        keeper.started(start, steady_s(), _wall_ms(), child.pid, str(child.log))
        self._tell(
            f"{keeper.name}: run {start.number} of version {start.definition.version}, pid {child.pid}"
        )

    # -- telling the others ------------------------------------------------------------------------------------------

    def _post(self, keeper: Keeper, post: Post) -> None:
        sent = steady_s()
        try:
            self._write(keeper, post)
        except Conflict:
            for effect in keeper.refused(steady_s()):
                self._do(keeper, effect)
            return
        except HeadraceError as problem:
            # It may or may not be stored. The next one begins with a claim and a look.
            self._producers.pop(keeper.name, None)
            if problem.kind in _AWAY:
                self._missed(problem)
            else:
                self._complain(keeper.name, problem)
            return
        keeper.posted(post, sent)
        child = self._children.get(keeper.name)
        if child is not None and keeper.is_ours:
            child.extend(keeper.leash)

    def _write(self, keeper: Keeper, post: Post) -> None:
        name = keeper.name
        claim = lease_id(name)
        producer = self._producers.get(name) if post.over is None else None
        if producer is not None:
            try:
                self._store.again(claim, producer, self._rows(name, post))
                return
            except HeadraceError as problem:
                if not is_fenced(problem):
                    raise
        self._producers.pop(name, None)

        def decide() -> Rows:
            known = self._store.hold(name)
            found = (known.holder, known.beat) if known is not None else ("", -1)
            if found != post.over and (post.over is not None or found[0] != self.me.id):
                raise Conflict
            return self._rows(name, post)

        self._producers[name] = self._store.change(claim, decide)
        self._fences[name] = fence_of(self._producers[name])

    def _rows(self, name: str, post: Post) -> Rows:
        if post.erases:
            return [(key, None) for key in self._store.keys_of(name) if key != name]
        hold: Hold = post.hold
        runs = [(run_key(name, run.number), encode(run)) for run in post.runs]
        return [(lease_key(name), encode(hold)), *runs]


def lease_id(name: str) -> str:
    """The transactional id whose epoch is the fence of a pipeline's lease."""
    return f"headrace-lease-{name}"


def fence_of(producer: Producer) -> int:
    """Larger after each claim of the lease: a claim raises the epoch of its transactional id, or gets a new producer id, which is larger than
    all before it. What a run commits elsewhere carries this number, and is refused where a larger one has been (T3)."""
    return producer.identity.producer_id << 16 | producer.identity.epoch


def _wall_ms() -> int:
    return int(time.time() * 1000)

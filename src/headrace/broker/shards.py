"""Driver: the one runtime under every stateful coordinator (groups, transactions, queues, schedules).

A shard is a pure Machine plus one partition of an internal topic. Facts are applied at once and journaled;
replies and effects wait at the gate until every fact planned before them is committed. When a journal write
fails, memory is ahead of the log, so the shard throws its memory away and loads again: a Load (load.py) is one life of
that memory, and a shard has one after the other for as long as this broker leads the partition.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Generic

from headrace.broker.load import FIRST_PAUSE_S, MAX_PAUSE_S, Confirms, E, Load, M, ShardState
from headrace.broker.partition import Partition
from headrace.broker.runtime import Runtime
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.plan import AnyCommand, Command, R

log = logging.getLogger(__name__)

CALM_MS = 10_000
"""A load that lived so long had no part in the trouble that ended it: the next one begins at once."""


class Shard(Generic[M, E]):
    """One partition of coordinator state on this broker, for as long as it leads that partition."""

    def __init__(
        self,
        runtime: Runtime,
        partition: Partition,
        make_machine: Callable[[], M],
        perform: Callable[[Load[M, E], E], None],
        confirms: Confirms = lambda command, answer: False,
        *,
        gathers: bool = False,
    ) -> None:
        """`perform` carries out an effect for the load that asked for it, and for no other.

        `gathers`: what is decided in one turn of the loop is journaled as one batch. For machines whose replay does not
        depend on whether a transaction's marker comes before or after such a fact."""
        self.runtime = runtime
        self.partition = partition
        self.make_machine = make_machine
        self.perform = perform
        self.confirms = confirms
        self.gathers = gathers
        self.settle: Callable[[], Awaitable[None]] = _settled
        """Before each load: ends what an earlier life left open in the journal."""
        self.on_ready: Callable[[Load[M, E]], None] = lambda load: None
        """Called after each load, before anybody is answered from it."""
        self._closed = False
        self._pause_s = 0.0
        self._unheard: list[AnyCommand] = []
        """What was told while there was nobody to hear it, in order."""
        self.current: Load[M, E] = Load(self, 1, make_machine())
        partition.on_commit.append(self._committed, self._broke)

    # -- life ------------------------------------------------------------------------------------------------

    @property
    def state(self) -> ShardState:
        return self.current.state

    @property
    def machine(self) -> M:
        return self.current.machine

    @property
    def leads(self) -> bool:
        return not self._closed and self.partition.is_leader and not self.partition.failed

    def start(self) -> None:
        self._begin(self.current)

    def close(self) -> None:
        """Leadership is gone."""
        self._closed = True
        self._unheard.clear()
        self.partition.on_commit.remove(self._committed)
        self.current.end(ErrorKind.NOT_COORDINATOR)

    def load_again(self, load: Load[M, E], kind: ErrorKind) -> None:
        """`load` can't go on. Its successor begins at once, or after a while when the trouble lasts; a leader goes on until
        it has loaded (F18). Should somebody else lead by now, nothing begins."""
        if load is not self.current or load.ended:
            return
        load.end(kind)
        if not self.leads:
            return
        lived_ms = self.runtime.clock.now_ms() - load.began_ms
        pause_s = 0.0 if lived_ms >= CALM_MS else self._pause_s
        self._pause_s = min(MAX_PAUSE_S, max(FIRST_PAUSE_S, 2 * pause_s))
        self.current = Load(self, load.generation + 1, self.make_machine())
        self._begin(self.current, pause_s)

    def _begin(self, load: Load[M, E], pause_s: float = 0.0) -> None:
        load.spawn(self._load(load, pause_s), f"load {self.partition.tp}")

    async def _load(self, load: Load[M, E], pause_s: float) -> None:
        if pause_s:
            await asyncio.sleep(pause_s)
        try:
            await load.load()
            self._ready(load)
        except HeadraceError as problem:
            log.info("%s: not loaded: %s", self.partition.tp, problem.detail)
            self.load_again(load, problem.kind)
        except Exception:
            log.exception("%s: not loaded", self.partition.tp)
            self.load_again(load, ErrorKind.UNKNOWN_SERVER_ERROR)

    def _ready(self, load: Load[M, E]) -> None:
        if not load.ended:
            self.on_ready(load)
        while self._unheard and not load.ended:
            if load.tell(self._unheard[0]):
                del self._unheard[0]

    def _committed(self, high_watermark: int) -> None:
        self.current.committed(high_watermark)

    def _broke(self, problem: Exception) -> None:
        """Somebody at the gate raised: what was let go and what was not is unknown (F16)."""
        self.current.distrust(ErrorKind.UNKNOWN_SERVER_ERROR)

    @property
    def is_settled(self) -> bool:
        return self.current.is_settled

    # -- commands --------------------------------------------------------------------------------------------

    def submit(self, command: Command[R]) -> asyncio.Future[R]:
        """Decide one command now. The future resolves when the machine has answered and the answer is durable."""
        return self.current.submit(command)

    def tell(self, command: AnyCommand) -> None:
        """News from the world, which is told once: what can't be heard now is heard by the next load that is ready.

        What concerns one load, or what the journal says as well, is told to the load itself.
        """
        if not self._closed and (self._unheard or not self.current.tell(command)):
            self._unheard.append(command)


async def _settled() -> None:
    """Nothing was left open."""

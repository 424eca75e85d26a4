"""Machine: R47 after an abort: who speaks next over a connection from before it has to say it twice.

An old client that gives a batch up, aborts and goes on under the same epoch may have its partition in the next transaction
before it writes there. Until then nothing at the partition tells that batch, should it arrive now, from the first one of
the next transaction: the coordinator confirms the partition, and no newer connection has spoken yet. But who gave a request
up does not hear the answer to it. So the first words after an abort are answered with "again, please" unless they come
over a connection that was opened since; a client that is alive repeats them over the same connection, and one that has
left it never does.

Only after aborts: who commits has had an answer to everything it sent. It costs one retry per abort and partition.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

MAX_PRODUCERS = 10_000
MAX_WORDS = 100


class _Abort:
    __slots__ = ("connection_floor", "epoch", "said")

    def __init__(self, epoch: int, connection_floor: int) -> None:
        self.epoch = epoch
        self.connection_floor = connection_floor
        self.said: set[tuple[int, Hashable]] = set()
        """Connection and words that have been answered with "again"."""


class Hearings:
    """Of one partition. Memory only: a new leader hears no connection from before its leadership (see Leaderships), and
    an abort that it has not seen was there before those."""

    __slots__ = ("_aborts", "_limit")

    def __init__(self, limit: int = MAX_PRODUCERS) -> None:
        self._aborts: OrderedDict[int, _Abort] = OrderedDict()
        self._limit = limit

    def aborted(self, producer_id: int, producer_epoch: int, newest_connection_id: int) -> None:
        self._aborts[producer_id] = _Abort(producer_epoch, newest_connection_id)
        self._aborts.move_to_end(producer_id)
        if len(self._aborts) > self._limit:
            self._aborts.popitem(last=False)

    def doubts(self, producer_id: int, producer_epoch: int, connection_id: int) -> bool:
        """Nothing was heard since the abort, and this connection was there before it."""
        abort = self._aborts.get(producer_id)
        return abort is not None and producer_epoch == abort.epoch and connection_id <= abort.connection_floor

    def admits(self, producer_id: int, producer_epoch: int, connection_id: int, words: Hashable) -> bool:
        """False: it has to be said again. `words` is what a repetition has in common with the first time and with
        nothing else that waits in the same connection: a batch's first sequence."""
        if not self.doubts(producer_id, producer_epoch, connection_id):
            return True
        said = self._aborts[producer_id].said
        if (connection_id, words) in said:
            return True
        if len(said) < MAX_WORDS:
            said.add((connection_id, words))
        return False

    def spoke(self, producer_id: int) -> None:
        """It has written here since: from now on order within a connection, and the newest connection, tell."""
        self._aborts.pop(producer_id, None)

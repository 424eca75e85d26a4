"""Machine: R47 on the produce path: of two connections that write for one old producer, only the newer is heard.

The coordinator keeps the same rule per transactional id (see admission.py); this is its twin for the broker that leads
partitions, where the delayed request is a Produce. For clients that bump epochs (R46) the epoch does the same job.
"""

from __future__ import annotations

from collections import OrderedDict

MAX_PRODUCERS = 100_000


class NewestConnections:
    """Per producer id: the epoch and the newest connection that wrote under it. Connection ids rise on this broker."""

    __slots__ = ("_limit", "_newest")

    def __init__(self, limit: int = MAX_PRODUCERS) -> None:
        self._newest: OrderedDict[int, tuple[int, int]] = OrderedDict()
        self._limit = limit

    def admit(self, producer_id: int, producer_epoch: int, connection_id: int) -> bool:
        """False: a newer connection spoke already. An older epoch passes: the partition refuses that by itself."""
        epoch, newest = self._newest.get(producer_id, (-1, -1))
        if producer_epoch < epoch:
            return True
        if producer_epoch == epoch and connection_id < newest:
            return False
        self._newest[producer_id] = (producer_epoch, connection_id)
        self._newest.move_to_end(producer_id)
        if len(self._newest) > self._limit:
            self._newest.popitem(last=False)
        return True

    def forget(self, producer_id: int) -> None:
        self._newest.pop(producer_id, None)

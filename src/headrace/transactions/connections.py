"""Machine: R47 where partitions are led: of two connections that speak for the same sender, only the newer is heard.

The coordinator keeps the same rule per transactional id (see admission.py); these are its twins for the broker that leads
partitions, where what arrives late is a Produce of a client or a marker of a coordinator. For clients that bump epochs
(R46) the epoch does the same job.
"""

from __future__ import annotations

from collections import OrderedDict

from headrace.core.ids import TopicPartition

MAX_PRODUCERS = 100_000
MAX_SENDERS = 10_000
FIRST_EPOCH = 0


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


class MarkerSenders:
    """Per broker that sends us markers: the newest connection it used.

    A coordinator repeats a marker only over another connection, so whatever an older one still carries has been said
    again. Executed after the next transaction of the same epoch has begun, it would end that one.
    """

    __slots__ = ("_limit", "_newest")

    def __init__(self, limit: int = MAX_SENDERS) -> None:
        self._newest: OrderedDict[str, int] = OrderedDict()
        self._limit = limit

    def admit(self, sender: str, connection_id: int) -> bool:
        if connection_id < self._newest.get(sender, -1):
            return False
        self._newest[sender] = connection_id
        self._newest.move_to_end(sender)
        if len(self._newest) > self._limit:
            self._newest.popitem(last=False)
        return True


class Leaderships:
    """Which connections are older than our leadership of a partition.

    While another broker led, what we had been sent before was said again to that one. When we lead again, connections
    from before are not heard for it: their owners open new ones. A partition that nobody has led before has no past.
    """

    __slots__ = ("_floors",)

    def __init__(self) -> None:
        self._floors: dict[TopicPartition, int] = {}

    def began(self, tp: TopicPartition, leader_epoch: int, newest_connection_id: int) -> None:
        if leader_epoch > FIRST_EPOCH:
            self._floors[tp] = newest_connection_id
        else:
            self._floors.pop(tp, None)

    def ended(self, tp: TopicPartition) -> None:
        self._floors.pop(tp, None)

    def admits(self, tp: TopicPartition, connection_id: int) -> bool:
        return connection_id > self._floors.get(tp, -1)

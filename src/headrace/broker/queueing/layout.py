"""Driver: where the parts of a queue are: which partitions it has, which of their shards are here, and who has the others.

Looked up once and kept until the image of the cluster or the shards on this broker change.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from headrace.broker.queueing import names
from headrace.broker.queueing.local.hosted import Hosted
from headrace.broker.queueing.routing.wrong_broker import WrongBroker
from headrace.broker.queueing.specs import QueueSpec
from headrace.cluster.image import ClusterImage
from headrace.queues.commands import Source


class Layout(NamedTuple):
    spec: QueueSpec
    sources: list[Source]
    local: list[tuple[Source, Hosted]]
    """Those whose shard is here."""
    others: list[int]
    """The other brokers that lead a part."""


class Layouts:
    def __init__(self, image: ClusterImage, node_id: int, hosted: Mapping[tuple[str, int], Hosted]) -> None:
        self._image = image
        self._node_id = node_id
        self._hosted = hosted
        self._known: dict[str, Layout] = {}
        self._revision = -1
        """Of the image that they were looked up in. Not all that changes in it is told: that a fenced broker is gone, is not."""

    def forget(self) -> None:
        """A shard came or went here, or the cluster is another one."""
        self._known.clear()

    def of(self, spec: QueueSpec) -> Layout:
        if self._revision != self._image.revision:
            self._known.clear()
            self._revision = self._image.revision
        known = self._known.get(spec.name)
        if known is None or known.spec is not spec:
            known = self._known[spec.name] = self._look(spec)
        return known

    def _look(self, spec: QueueSpec) -> Layout:
        sources = [
            Source(spec.name, topic, number)
            for topic in spec.topics
            if (known := self._image.topic(topic)) is not None
            for number in range(len(known.partitions))
        ]
        local = [
            (source, hosted) for source in sources if (hosted := self._hosted.get(source[1:])) is not None
        ]
        homes = {self.home_of(source) for source in sources}
        return Layout(spec, sources, local, sorted(homes - {-1, self._node_id}))

    def home_of(self, source: Source) -> int:
        """The broker whose shard has this source; -1 when nobody leads it right now."""
        node = self._image.leader(names.journal_topic(source.topic), source.partition)
        return -1 if node is None else node.id

    def hosted(self, source: Source) -> Hosted:
        hosted = self._hosted.get(source[1:])
        if hosted is None:
            raise WrongBroker(self.home_of(source), str(source))
        return hosted

    def is_here(self, source: Source) -> bool:
        return source[1:] in self._hosted

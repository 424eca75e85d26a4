"""Driver: the views of a broker: which strip belongs to a name and a number, and what is forgotten when.

Views are served by the leader of the source's partition, and by nobody else.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from headrace.broker.partition import Partition
from headrace.broker.runtime import Runtime
from headrace.broker.views.scanner import Lens, Scanner
from headrace.broker.views.strips import Strip, StripBudget
from headrace.broker.views.tag_index import TagBudget, TagIndex
from headrace.cluster.deltas import Delta, TopicGone
from headrace.cluster.image import ClusterImage
from headrace.cluster.views import ViewSpec
from headrace.core.errors import ErrorKind
from headrace.core.ids import is_internal
from headrace.core.limits import MIB
from headrace.core.plan import Rejected
from headrace.records.filters import compile_filter
from headrace.records.selection import RecordPlaces

CACHE_BYTES = 64 * MIB
TAG_INDEX_BATCHES = 500_000
"""About 20 bytes each."""

MAX_PASSING = 256
"""Filters of fetches that are remembered at once, each for one partition."""

FindPartition = Callable[[str, int], tuple[Partition | None, ErrorKind]]


class Views:
    def __init__(self, runtime: Runtime, image: ClusterImage, find_partition: FindPartition) -> None:
        self.scanner = Scanner(runtime)
        self.budget = StripBudget(CACHE_BYTES)
        self.wall_ms = runtime.clock.wall_ms
        self._tag_budget = TagBudget(TAG_INDEX_BATCHES)
        self._image = image
        self._find_partition = find_partition
        self._lenses: dict[tuple[bytes, int], Lens] = {}
        self._passing: OrderedDict[tuple[bytes, int, str], Lens] = OrderedDict()
        self._tags: dict[tuple[bytes, int], TagIndex] = {}
        """By topic id: what was in a topic says nothing about another of its name."""

    def lens(self, view: str, number: int) -> tuple[Lens | None, ErrorKind]:
        """A view's partition here, or what a client is told instead."""
        topic = self._image.topic(view)
        if topic is None or topic.view is None:
            return None, ErrorKind.UNKNOWN_TOPIC_OR_PARTITION
        partition, missing = self._find_partition(topic.view.source, number)
        if partition is None:
            return None, missing
        lens = self._lenses.get((topic.id, number))
        if lens is None or lens.partition is not partition:
            if lens is not None:
                lens.strip.clear()
            tags = self._tag_index(partition)
            place = RecordPlaces(topic.view.source, number)
            lens = Lens(topic.view, partition, place, Strip(self.budget), tags)
            self._lenses[topic.id, number] = lens
        return lens, ErrorKind.NONE

    def lag(self, topic: str, number: int, committed: int) -> int | None:
        """Of a group on a view's partition that is led here: offsets that may hold a match; None: it is no such view."""
        lens, _ = self.lens(topic, number) if self._image.view(topic) is not None else (None, None)
        if lens is None:
            return None
        lens.refresh()
        return max(0, lens.partition.high_watermark - lens.strip.quiet_to(committed))

    def passing_lens(self, partition: Partition, where: str) -> Lens:
        """For a filter that comes with a fetch and leaves no trace but a strip. Raises FilterProblem."""
        key = (partition.topic_id, partition.tp.partition, where)
        lens = self._passing.get(key)
        if lens is None or lens.partition is not partition:
            spec = ViewSpec(partition.tp.topic, compile_filter(where))
            tags = self._tag_index(partition)
            lens = Lens(spec, partition, RecordPlaces(*partition.tp), Strip(self.budget), tags)
            self._passing[key] = lens
            if len(self._passing) > MAX_PASSING:
                self._passing.popitem(last=False)[1].strip.clear()
        self._passing.move_to_end(key)
        return lens

    def heard(self, deltas: list[Delta]) -> None:
        for delta in deltas:
            if isinstance(delta, TopicGone):
                for key in [key for key in self._lenses if key[0] == delta.topic_id]:
                    self._lenses.pop(key).strip.clear()
                for passing in [key for key in self._passing if key[0] == delta.topic_id]:
                    self._passing.pop(passing).strip.clear()
                for place in [place for place in self._tags if place[0] == delta.topic_id]:
                    self._tags.pop(place).valid_for(None)

    def _tag_index(self, partition: Partition) -> TagIndex:
        place = (partition.topic_id, partition.tp.partition)
        return self._tags.setdefault(place, TagIndex(self._tag_budget))

    def write_refusal(self, topic: str) -> Rejected | None:
        """Internal topics are written by the broker alone (X17), views by nobody."""
        if is_internal(topic):
            return Rejected(ErrorKind.INVALID_TOPIC_EXCEPTION, f"{topic} is internal")
        spec = self._image.view(topic)
        if spec is None:
            return None
        return Rejected(
            ErrorKind.INVALID_TOPIC_EXCEPTION,
            f"{topic} is a view of {spec.source} and can't be written to; produce to {spec.source}",
        )

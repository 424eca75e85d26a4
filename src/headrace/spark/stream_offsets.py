"""Machine: what a checkpoint says about a stream: how far each partition is read, and of which topic that is said.

    {"orders": {"0": 120, "1": 98}, "#headrace": {"ids": {"orders": "6f…"}, "begins": {…}, "skipped": {…}}}

The first part is the form of Spark's own Kafka source, whose checkpoints are read as they are. A name says nothing
about which topic is meant: one that was deleted and created again has another id, and offsets of the old one mean nothing in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from headrace.core.ids import ZERO_UUID, TopicPartition
from headrace.spark.plan import OffsetRange, from_json, to_json

Offsets = dict[TopicPartition, int]
EXTRA = "#headrace"
"""No topic has such a name."""


@dataclass(frozen=True, slots=True)
class StreamOffset:
    offsets: Offsets
    ids: dict[str, bytes] = field(default_factory=dict)
    """Topic -> its id. A topic without one: any."""
    begins: Offsets = field(default_factory=dict)
    """Where partitions were begun that came while the query ran, if not at 0, or that were begun anew."""
    skipped: Offsets = field(default_factory=dict)
    """Records that were gone before they were read, in the whole life of the query."""

    def to_json(self) -> dict[str, Any]:
        extra: dict[str, Any] = {}
        if self.ids:
            extra["ids"] = {topic: value.hex() for topic, value in sorted(self.ids.items())}
        if self.begins:
            extra["begins"] = to_json(self.begins)
        if self.skipped:
            extra["skipped"] = to_json(self.skipped)
        return {**to_json(self.offsets), **({EXTRA: extra} if extra else {})}

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> StreamOffset:
        extra = given.get(EXTRA, {})
        return cls(
            from_json(given),
            {topic: bytes.fromhex(text) for topic, text in extra.get("ids", {}).items()},
            from_json(extra.get("begins", {})),
            from_json(extra.get("skipped", {})),
        )

    def is_of(self, topic: str, topic_id: bytes) -> bool:
        return self.ids.get(topic, topic_id) == topic_id


def ranges(start: StreamOffset, end: StreamOffset) -> list[OffsetRange]:
    """What lies between two offsets of one query."""
    found = []
    for tp, stop in sorted(end.offsets.items()):
        topic_id = end.ids.get(tp.topic, ZERO_UUID)
        begun_anew = tp in end.begins and start.begins.get(tp) != end.begins[tp]
        if tp in start.offsets and not begun_anew and start.is_of(tp.topic, topic_id):
            first = start.offsets[tp]
        else:
            first = end.begins.get(tp, 0)
        if stop > first:
            found.append(OffsetRange(*tp, first, stop, topic_id))
    return found


@dataclass(frozen=True, slots=True)
class Sight:
    """The topics as they are now."""

    ends: Offsets
    ids: dict[str, bytes]
    firsts: Offsets
    """Where each partition begins; may be empty when nobody has looked this time."""


@dataclass(frozen=True, slots=True)
class Losses:
    """What a position promises and the topics no longer have."""

    gone: list[TopicPartition]
    back: list[TopicPartition]
    """They end before what was read."""
    other: list[str]
    """Another topic has the name now."""
    overtaken: Offsets
    """Retention took so many records that were not read."""

    def told(self, on_loss: str) -> str:
        """What can't be accepted under this rule; empty: nothing."""
        words = []
        if self.other:
            words.append(f"{', '.join(self.other)} was deleted and created again")
        if self.back:
            words.append(f"{', '.join(map(str, self.back))} end before what was read")
        if on_loss == "fail":
            if self.gone:
                words.append(f"{', '.join(map(str, self.gone))} no longer exist")
            if self.overtaken:
                lost = ", ".join(f"{count} records of {tp}" for tp, count in self.overtaken.items())
                words.append(f"{lost} are gone, retention was faster")
        return "" if on_loss == "reset" else "; ".join(words)


def losses(start: StreamOffset, now: Sight) -> Losses:
    other = sorted(topic for topic, topic_id in now.ids.items() if not start.is_of(topic, topic_id))
    ours = {tp: offset for tp, offset in start.offsets.items() if tp.topic not in other}
    return Losses(
        [tp for tp in sorted(ours) if tp not in now.ends],
        [tp for tp in sorted(ours) if tp in now.ends and now.ends[tp] < ours[tp]],
        other,
        {tp: now.firsts[tp] - ours[tp] for tp in sorted(ours) if now.firsts.get(tp, 0) > ours[tp]},
    )


def settled(
    start: StreamOffset, now: Sight, lost: Losses, firsts: Mapping[TopicPartition, int]
) -> StreamOffset:
    """The position to go on from when the losses are accepted. `firsts` has those of new partitions at least."""
    anew = {tp for tp in now.ends if tp.topic in lost.other or tp in lost.back}
    offsets, begins, skipped = {}, dict(start.begins), dict(start.skipped)
    for tp in now.ends:
        if tp in start.offsets and tp not in anew:
            offsets[tp] = start.offsets[tp] + lost.overtaken.get(tp, 0)
            continue
        offsets[tp] = firsts[tp]
        if firsts[tp] or tp in anew:
            begins[tp] = firsts[tp]
    for tp, count in lost.overtaken.items():
        skipped[tp] = skipped.get(tp, 0) + count
    return replace(start, offsets=offsets, ids={**start.ids, **now.ids}, begins=begins, skipped=skipped)

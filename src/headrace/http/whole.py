"""Driver: the numbers of a whole cluster in one place: those of this broker, and what the others say when they are asked, once a second at most.

GET /internal/lately       what a broker has sampled, as msgpack, for its peers

Nobody is asked while nobody looks. A broker that does not answer is named in `missing`: its numbers are not there, and are not zeros.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from typing import TypeVar

import msgspec

from headrace.broker.history import BrokerNow, GroupNow, Lately, QueueNow, Sampler, TopicNow
from headrace.cluster.image import ClusterImage
from headrace.core.errors import HeadraceError
from headrace.core.ports import Clock
from headrace.core.writers import WriterNow
from headrace.http.messages import Request, Response
from headrace.http.peer_requests import PeerRequests
from headrace.http.router import Router
from headrace.security.rights import BROKERS

PATH = "/internal/lately"
TYPE = "application/vnd.headrace.msgpack"
FRESH_MS = 900
ASK_S = 2.0

T = TypeVar("T")


class Said(msgspec.Struct, kw_only=True):
    """By one broker to another. What a newer one adds is not known here, and left out."""

    topics: dict[str, TopicNow]
    groups: dict[str, GroupNow]
    queues: dict[str, QueueNow]
    broker: BrokerNow
    writers: dict[str, list[WriterNow]] = {}
    ends: dict[str, dict[int, tuple[int, int]]] = {}
    """Start and high watermark of what it leads: groups are coordinated elsewhere than their partitions are led."""


class Whole:
    def __init__(self, clock: Clock, image: ClusterImage, sampler: Sampler, peers: PeerRequests) -> None:
        self._clock = clock
        self._image = image
        self._sampler = sampler
        self._peers = peers
        self._merged = sampler.lately
        self._looked_ms = -FRESH_MS
        self._one = asyncio.Lock()
        self.brokers: dict[int, BrokerNow] = {}
        """Of those that answered, as of the last look."""
        self.missing: list[int] = []
        """Brokers that are registered and did not answer."""

    def mount(self, router: Router) -> None:
        router.add("GET", PATH, self._say, BROKERS)

    def _say(self, request: Request) -> Response:
        lately = self._sampler.lately
        said = Said(
            topics=lately.topics, groups=lately.groups, queues=lately.queues, broker=lately.broker,
            writers=lately.writers.all(), ends=self._sampler.ends(),
        )  # fmt: skip
        return Response(msgspec.msgpack.encode(said), 200, TYPE)

    def others(self) -> list[int]:
        return [node.id for node in self._image.live_brokers() if node.id != self._image.broker_id]

    async def look(self) -> Lately:
        """Of all brokers; its history is this broker's own."""
        others = self.others()
        if not others:
            self._merged, self.missing = self._sampler.lately, []
            self.brokers = {self._image.broker_id: self._merged.broker}
            return self._merged
        async with self._one:
            if self._clock.now_ms() - self._looked_ms >= FRESH_MS:
                said = await asyncio.gather(*(self._hear(broker_id) for broker_id in others))
                self.missing = [broker_id for broker_id, one in zip(others, said, strict=True) if one is None]
                self.brokers = {
                    self._image.broker_id: self._sampler.lately.broker,
                    **{
                        broker_id: one.broker
                        for broker_id, one in zip(others, said, strict=True)
                        if one is not None
                    },
                }
                self._merged = self._merge([one for one in said if one is not None])
                self._looked_ms = self._clock.now_ms()
        return self._merged

    async def _hear(self, broker_id: int) -> Said | None:
        try:
            got = await self._peers.ask(broker_id, "GET", PATH, {}, b"", ASK_S)
            return msgspec.msgpack.decode(got.body, type=Said) if got.status == 200 else None
        except (HeadraceError, msgspec.DecodeError):
            return None

    async def gather(self, request: Request, kind: type[T]) -> list[T]:
        """What the other brokers answer to the same question; those that do not are left out. A broker that is asked by
        another asks nobody."""
        if request.sender is not None:
            return []
        target = request.path + (f"?{request.query_string}" if request.query_string else "")

        async def ask(broker_id: int) -> T | None:
            try:
                got = await self._peers.ask(
                    broker_id, "GET", target, {"accept": "application/json"}, b"", ASK_S
                )
                return msgspec.json.decode(got.body, type=kind) if got.status == 200 else None
            except (HeadraceError, msgspec.DecodeError):
                return None

        return [one for one in await asyncio.gather(*map(ask, self.others())) if one is not None]

    # -- sums ------------------------------------------------------------------------------------------------------------

    def _merge(self, said: list[Said]) -> Lately:
        own = self._sampler.lately
        whole = Lately(history=own.history, began_ms=own.began_ms)
        all_said = [
            Said(
                topics=own.topics, groups=own.groups, queues=own.queues, broker=own.broker,
                writers=own.writers.all(), ends=self._sampler.ends(),
            ),
            *said,
        ]  # fmt: skip
        for one in all_said:
            for name, topic in one.topics.items():
                _add_topic(whole.topics.setdefault(name, TopicNow()), topic)
            for name, queue in one.queues.items():
                _add_queue(whole.queues.setdefault(name, QueueNow()), queue)
            for written, rows in one.writers.items():
                whole.told_writers[written] = [*whole.told_writers.get(written, []), *rows]
        ends: dict[str, dict[int, tuple[int, int]]] = {}
        for one in all_said:
            for led, numbers in one.ends.items():
                ends.setdefault(led, {}).update(numbers)
        for one in all_said:
            for name, group in one.groups.items():
                known = whole.groups.get(name)
                if known is None or (group.members, group.seen_ms) > (known.members, known.seen_ms):
                    whole.groups[name] = _with_lag(group, ends)
        whole.broker = _sum(whole, [one.broker for one in all_said])
        return whole


def _add_topic(total: TopicNow, one: TopicNow) -> None:
    total.in_per_s += one.in_per_s
    total.in_bytes_per_s += one.in_bytes_per_s
    total.out_bytes_per_s += one.out_bytes_per_s
    total.messages += one.messages
    total.size_bytes += one.size_bytes
    total.last_write_ms = max(total.last_write_ms, one.last_write_ms)


def _add_queue(total: QueueNow, one: QueueNow) -> None:
    total.ready += one.ready
    total.in_flight += one.in_flight
    total.delayed += one.delayed
    total.done_per_s += one.done_per_s
    total.paused = total.paused or one.paused
    known = [ms for ms in (total.oldest_ms, one.oldest_ms) if ms]
    total.oldest_ms = min(known, default=0)


def _with_lag(group: GroupNow, ends: dict[str, dict[int, tuple[int, int]]]) -> GroupNow:
    """What its coordinator could not see because another broker leads it."""
    if not group.elsewhere:
        return group
    lags: dict[str, int] = {}
    for topic, number, offset in group.elsewhere:
        bounds = ends.get(topic, {}).get(number)
        if bounds is not None:
            lags[topic] = lags.get(topic, 0) + max(0, bounds[1] - max(offset, bounds[0]))
    topics = {
        topic: replace(share, lag=share.lag + lags.get(topic, 0)) for topic, share in group.topics.items()
    }
    return replace(group, topics=topics, lag=group.lag + sum(lags.values()), elsewhere=[])


def _sum(whole: Lately, brokers: Iterable[BrokerNow]) -> BrokerNow:
    total = BrokerNow()
    free = []
    for one in brokers:
        total.in_per_s += one.in_per_s
        total.out_per_s += one.out_per_s
        total.in_bytes_per_s += one.in_bytes_per_s
        total.out_bytes_per_s += one.out_bytes_per_s
        total.backlog += one.backlog
        total.oldest_age_ms = max(total.oldest_age_ms, one.oldest_age_ms)
        free += [one.free_bytes] if one.free_bytes >= 0 else []
    total.free_bytes = min(free, default=-1)  # the first that is full is everybody's trouble
    total.lag = sum(group.lag for group in whole.groups.values())
    return total

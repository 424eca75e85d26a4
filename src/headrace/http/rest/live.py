"""Door: what happens now, and what happened lately, without a metrics server (section 4 of the console's rules).

GET /api/v1/history      ?series=broker.in&series=topic:orders.in&from=&until=&step=1s|15s
GET /api/v1/events       ?topics=home&topics=topic:orders    server-sent: one `tick` a second, with what has changed since the last

Numbers are the cluster's: the broker that is asked asks the others, once a second at most (http/whole.py). `broker.in` is of this one alone,
`cluster.in` of all.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict
from typing import Any

import msgspec

from headrace.broker.history import BROKER, Lately, Sampler
from headrace.cluster.image import ClusterImage
from headrace.core.happenings import Happenings
from headrace.core.history import COARSE_S, FINE_S, FINE_STEPS
from headrace.core.ports import Clock
from headrace.http.contract import TEXT, Contract, Param, one_of
from headrace.http.declared import Door, route
from headrace.http.messages import Answer, Request
from headrace.http.problem import problem
from headrace.http.rest.forms.looking import LIST_OF_TEXTS, SPAN, ShownHistory
from headrace.http.rest.reading import answer, duration_ms, invalid, time_ms
from headrace.http.sse import encode_event, event_stream
from headrace.http.whole import Whole
from headrace.security.rights import GROUP, OWN, TOPIC, describe

MAX_SERIES = 20
MAX_POINTS = 6_000
MAX_STREAMS = 50
MAX_SUBJECTS = 20
WORST = 5
CLUSTER_WIDE = "cluster"
STEPS = {FINE_S * 1000: FINE_S, COARSE_S * 1000: COARSE_S}

KINDS = {"topic": TOPIC, "group": GROUP, "queue": GROUP}

View = dict[str, Any]


class LiveDoor(Door):
    def __init__(
        self, clock: Clock, image: ClusterImage, sampler: Sampler, whole: Whole, happenings: Happenings
    ) -> None:
        self._clock = clock
        self._happenings = happenings
        self._image = image
        self._sampler = sampler
        self._whole = whole
        self._now = sampler.lately
        self._tick = 0
        self._woken = asyncio.Event()
        self._views: dict[str, View] = {}
        """Of this tick: pages that look at the same thing share the work."""
        self._streams = 0

    @property
    def _lately(self) -> Lately:
        return self._sampler.lately

    # -- lately --------------------------------------------------------------------------------------------------------

    @route(
        "GET",
        "/api/v1/history",
        OWN.showing(describe(TOPIC), describe(GROUP)),
        Contract(
            "Numbers over time",
            "cluster",
            {200: ShownHistory},
            "`cluster.in`, `cluster.out`, `cluster.lag`, `cluster.backlog` of all brokers, `broker.in` of this one, `topic:NAME.in`, `group:NAME.lag`, `queue:NAME.ready` and others.",
            query=(
                Param(
                    "series", "a thing, a dot and a measure; may be given again", LIST_OF_TEXTS, required=True
                ),
                *SPAN,
                Param(
                    "step", "1s for the last quarter of an hour, 15s for the last day", one_of("1s", "15s")
                ),
            ),
            problems=(400,),
        ),
    )
    async def _history(self, request: Request) -> Answer:
        names = [value for name, value in request.query_pairs if name == "series"]
        if not 0 < len(names) <= MAX_SERIES:
            raise invalid(f"series is given 1 to {MAX_SERIES} times, as in series=broker.in")
        single = {name: value for name, value in request.query_pairs if name != "series"}
        step_s = STEPS.get(duration_ms(single.get("step", "1s"), "step"))
        if step_s is None:
            raise invalid("step is 1s (of the last quarter of an hour) or 15s (of the last day)")
        end_s = self._clock.wall_ms() // 1000
        if "until" in single:
            end_s = min(end_s, time_ms(single["until"], "until") // 1000)
        first_s = end_s - FINE_STEPS
        if "from" in single:
            first_s = time_ms(single["from"], "from") // 1000
        first_s, end_s = first_s // step_s * step_s, end_s // step_s * step_s
        first_s = max(first_s, end_s - MAX_POINTS * step_s)
        found = {
            name: self._series(
                name if _sees(request, name.rpartition(".")[0]) else "", step_s, first_s, end_s
            )
            for name in names
        }
        # Each second of each broker: what only some of them know is the sum of those.
        others = (
            await self._whole.gather(request, ShownHistory)
            if any(not name.startswith("broker.") for name in names)
            else []
        )
        for other in others:
            for name in names:
                if not name.startswith("broker."):
                    found[name] = added(
                        found[name],
                        other.series.get(name, []),
                        (other.from_ms // 1000 - first_s) // step_s,
                    )
        return answer(
            ShownHistory(
                broker_id=self._image.broker_id,
                brokers=1 + len(others),
                began_ms=self._lately.began_ms,
                from_ms=first_s * 1000,
                step_ms=step_s * 1000,
                series=found,
            )
        )

    def _series(self, name: str, step_s: int, first_s: int, end_s: int) -> list[float | None]:
        thing, _, measure = name.rpartition(".")
        thing = BROKER if thing == CLUSTER_WIDE else thing
        series = self._lately.history.find(thing, measure)
        count = max(0, (end_s - first_s) // step_s)
        if series is None:
            return [None] * count
        if step_s in series.steps:
            return [_rounded(value) for value in series.read(step_s, first_s, end_s)]
        # It is among the many of which only every fifteen seconds are kept: the same value for each of them.
        coarse = series.read(
            COARSE_S, first_s // COARSE_S * COARSE_S, end_s // COARSE_S * COARSE_S + COARSE_S
        )
        base = first_s // COARSE_S
        return [_rounded(coarse[second // COARSE_S - base]) for second in range(first_s, end_s)]

    # -- now -----------------------------------------------------------------------------------------------------------

    @route(
        "GET",
        "/api/v1/events",
        OWN.showing(describe(TOPIC), describe(GROUP)),
        Contract(
            "What happens now",
            "cluster",
            {200: str},
            "Server-sent events `tick`, one a second, with what has changed since the last. At most 50 streams a broker.",
            query=(
                Param(
                    "topics",
                    "home, topic:NAME, group:NAME, queue:NAME; may be given again",
                    {**LIST_OF_TEXTS, "items": TEXT},
                ),
            ),
            content_type="text/event-stream",
            problems=(400, 429),
        ),
    )
    def _events(self, request: Request) -> Answer:
        subjects = [value for name, value in request.query_pairs if name == "topics"] or ["home"]
        if len(subjects) > MAX_SUBJECTS:
            raise invalid(f"a stream is about {MAX_SUBJECTS} things at most")
        for subject in subjects:
            if subject != "home" and not subject.startswith(("topic:", "group:", "queue:")):
                raise invalid(f"{subject!r} is not home, topic:NAME, group:NAME or queue:NAME")
        if self._streams >= MAX_STREAMS:
            return problem(
                429, "TOO_MANY_STREAMS", f"this broker has {MAX_STREAMS} pages open already",
                hint="Close some of them, or ask another broker.", request_id=request.request_id, instance=request.path,
            )  # fmt: skip
        if self.on_tick not in self._sampler.on_tick:
            self._sampler.on_tick.append(self.on_tick)
        return event_stream(self._ticks(request, dict.fromkeys(subjects)))

    def on_tick(self) -> None:
        self._tick += 1
        self._views.clear()
        woken, self._woken = self._woken, asyncio.Event()
        woken.set()

    async def _ticks(self, request: Request, subjects: dict[str, None]) -> AsyncIterator[bytes]:
        self._streams += 1
        sent: dict[str, View] = {}
        try:
            while True:
                woken = self._woken
                lately = await self._whole.look()
                if lately is not self._now:
                    self._now = lately
                    self._views.clear()
                change: dict[str, object] = {"at_ms": self._clock.wall_ms()}
                for subject in subjects:
                    view = self._seen(request, subject)
                    before = sent.get(subject)
                    if before is None:
                        change[subject] = view
                    elif before != view:
                        change[subject] = {
                            name: value for name, value in view.items() if before.get(name) != value
                        }
                    sent[subject] = view
                text = msgspec.json.encode(change).decode()
                yield encode_event(text, event="tick", event_id=str(self._tick))
                await woken.wait()
        finally:
            self._streams -= 1

    def _seen(self, request: Request, subject: str) -> View:
        """What the caller may see of it (A44)."""
        if not _sees(request, subject):
            return {}
        view = self._view(subject)
        if subject != "home":
            return view
        return {
            **view,
            "lags": [row for row in view["lags"] if request.sees(GROUP, row["group"])],
            "dead": [row for row in view["dead"] if request.sees(GROUP, row["queue"])],
        }

    def _view(self, subject: str) -> View:
        found = self._views.get(subject)
        if found is None:
            kind, _, name = subject.partition(":")
            look: dict[str, Callable[[str], View]] = {
                "home": self._home,
                "topic": self._topic,
                "group": self._group,
                "queue": self._queue,
            }
            found = self._views[subject] = look[kind](name)
        return found

    def _home(self, _: str) -> View:
        lately = self._now
        now = lately.broker
        lags = sorted(lately.groups.items(), key=lambda item: -item[1].lag)[:WORST]
        graveyards = {spec.queue_config.dead_letter for spec in self._sampler.queues.specs()} - {""}
        dead = [
            {"queue": name, "messages": queue.ready + queue.in_flight}
            for name in sorted(graveyards)
            if (queue := lately.queues.get(name)) is not None and queue.ready + queue.in_flight
        ]
        return {
            "in_per_s": _rounded(now.in_per_s),
            "out_per_s": _rounded(now.out_per_s),
            "in_bytes_per_s": _rounded(now.in_bytes_per_s),
            "out_bytes_per_s": _rounded(now.out_bytes_per_s),
            "backlog": now.backlog,
            "oldest_age_ms": now.oldest_age_ms // 1000 * 1000,
            "lag": now.lag,
            "lags": [{"group": name, "lag": group.lag} for name, group in lags if group.lag],
            "behind": sum(group.lag > 0 for group in lately.groups.values()),
            "dead": sorted(dead, key=lambda one: -int(str(one["messages"])))[:WORST],
            "free_bytes": now.free_bytes if now.free_bytes >= 0 else None,
            "full_in_ms": self._full_in_ms(),
            "topics": sum(not topic.internal for topic in self._image.topics.values()),
            "groups": len(lately.groups),
            "queues": len(lately.queues),
            "missing": list(self._whole.missing),
            "happened": self._happenings.number,
        }

    def _full_in_ms(self) -> int | None:
        """At the rate of the last quarter of an hour; None while there is no telling."""
        series = self._lately.history.find(BROKER, "free_bytes")
        if series is None:
            return None
        end_s = self._clock.wall_ms() // 1000 // COARSE_S * COARSE_S
        known = [
            (place, value) for place, value in enumerate(series.read(COARSE_S, end_s - 900, end_s)) if value
        ]
        if len(known) < 8:
            return None
        (first, before), (last, after) = known[0], known[-1]
        lost_per_ms = (before - after) / ((last - first) * COARSE_S * 1000)
        # What would last for a month is nobody's worry, and less than that noise of a few files.
        if lost_per_ms <= 0 or after / lost_per_ms > 30 * 86_400_000:
            return None
        return int(after / lost_per_ms) // 60_000 * 60_000

    def _topic(self, name: str) -> View:
        topic = self._now.topics.get(name)
        if topic is None:
            return {}
        return {
            "in_per_s": _rounded(topic.in_per_s),
            "in_bytes_per_s": _rounded(topic.in_bytes_per_s),
            "out_bytes_per_s": _rounded(topic.out_bytes_per_s),
            "messages": topic.messages,
            "bytes": topic.size_bytes,
            "last_write_ms": topic.last_write_ms or None,
        }

    def _group(self, name: str) -> View:
        group = self._now.groups.get(name)
        if group is None:
            return {}
        return {"members": group.members, "lag": group.lag, "out_per_s": _rounded(group.out_per_s)}

    def _queue(self, name: str) -> View:
        queue = self._now.queues.get(name)
        if queue is None:
            return {}
        known = asdict(queue)
        return {
            **{each: known[each] for each in ("ready", "in_flight", "delayed", "paused")},
            "done_per_s": _rounded(queue.done_per_s),
            "oldest_ms": queue.oldest_ms or None,
        }


def _sees(request: Request, thing: str) -> bool:
    kind, _, name = thing.partition(":")
    return kind not in KINDS or request.sees(KINDS[kind], name)


def added(sums: list[float | None], more: list[float | None], shift: int) -> list[float | None]:
    """A broker that was asked a moment later begins a step later. Where one of them has numbers before and none now there is no sum: what
    is left of it would be shown as a fall."""
    moved = [more[at - shift] if 0 <= at - shift < len(more) else None for at in range(len(sums))]
    total: list[float | None] = []
    begun = [False, False]
    for at, pair in enumerate(zip(sums, moved, strict=True)):
        begun = [before or value is not None for before, value in zip(begun, pair, strict=True)]
        known = [value for value in pair if value is not None]
        whole = len(known) == sum(begun) or at - shift >= len(more)
        total.append(_rounded(sum(known)) if known and whole else None)
    return total


def _rounded(value: float | None) -> float | None:
    """Three digits are what a person reads; the rest is bytes on the wire."""
    return None if value is None else round(value, 3 if abs(value) < 100 else 0)

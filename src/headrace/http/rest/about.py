"""Door: how this broker is, and what it is.

GET /api/v1/health       what is not well, since when, and what to do about it
GET /api/v1/version
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Literal

from headrace.cluster.image import ClusterImage
from headrace.core.ports import Clock
from headrace.http.console.assets import page_tag
from headrace.http.contract import Contract
from headrace.http.declared import Door, route
from headrace.http.health import Degraded
from headrace.http.messages import Answer, Request
from headrace.http.rest.forms.service import Finding, ShownHealth, ShownVersion
from headrace.http.rest.reading import answer
from headrace.security.rights import OWN

Look = Callable[[], Mapping[str, str | None]]
"""What each check says now: None is well, Degraded is told and served all the same (http/health.py)."""

HINTS = {
    "broker": "Wait, or look into the broker's log.",
    "disk": "Free space on the disk of the data directory, or shorten the retention of a topic; writing goes on by itself.",
    "log": "The disk does not take what is written: look at its health before anything else.",
    "tasks": "headrace doctor looks at each part; the broker's log has the traceback.",
    "coordinator": "See that etcd is reachable from here: headrace doctor asks each of its members.",
    "replication": "headrace cluster partitions names the replicas and who does not follow.",
    "background": "The broker's log has the traceback; it is tried again by itself.",
    "leaders": "Start the brokers that hold them: headrace cluster partitions names them.",
    "in sync": "A broker is away or slow: headrace cluster status.",
}
SLICE = 2_000
"""Partitions looked at in one turn of the loop."""
NO_STORE = (("cache-control", "no-store"),)


class Since:
    """Machine: since when each finding holds. What is gone and comes back begins anew."""

    def __init__(self) -> None:
        self._since: dict[str, int] = {}

    def note(self, found: Mapping[str, str | None], wall_ms: int) -> dict[str, int]:
        self._since = {
            name: self._since.get(name, wall_ms) for name, trouble in found.items() if trouble is not None
        }
        return self._since


class AboutDoor(Door):
    def __init__(
        self,
        clock: Clock,
        image: ClusterImage,
        look: Look,
        version: str,
        *,
        console: bool,
    ) -> None:
        self._clock = clock
        self._image = image
        self._look = look
        self._version = version
        self._console = console
        self._standing = Since()

    @route(
        "GET",
        "/api/v1/health",
        OWN,
        Contract(
            "What is not well, since when, and what to do",
            "service",
            {200: ShownHealth},
            problems=(),
            name="get_findings",
        ),
    )
    async def _health(self, request: Request) -> Answer:
        found = {**self._look(), **await self._partitions()}
        found.pop("loop", None)  # a moment's, not a state
        wall_ms = self._clock.wall_ms()
        since = self._standing.note(found, wall_ms)
        findings = [
            Finding(
                check=name,
                severity="warning" if isinstance(trouble, Degraded) else "error",
                detail=str(trouble),
                since_ms=since[name],
                hint=HINTS.get(name, ""),
            )
            for name, trouble in found.items()
            if trouble is not None
        ]
        findings.sort(key=lambda one: (one.severity, one.since_ms))
        severities = {one.severity for one in findings}
        status: Literal["ok", "degraded", "not-ready"] = (
            "not-ready" if "error" in severities else "degraded" if findings else "ok"
        )
        return answer(
            ShownHealth(
                status=status,
                sentence=self._sentence(findings),
                findings=findings,
                answered_by=self._image.broker_id,
                checked_ms=wall_ms,
            ),
            headers=NO_STORE,
        )

    def _sentence(self, findings: list[Finding]) -> str:
        if not findings:
            brokers = len(self._image.live_brokers())
            topics = sum(not topic.internal for topic in self._image.topics.values())
            return f"All is well: {_many(brokers, 'broker')}, {_many(topics, 'topic')}."
        first = findings[0]
        rest = f" And {len(findings) - 1} more." if len(findings) > 1 else ""
        return f"{first.check.capitalize()}: {first.detail}.{rest}"

    async def _partitions(self) -> dict[str, str | None]:
        """Of the whole cluster, as far as this broker knows it."""
        leaderless = lacking = 0
        for place, (_, _, state) in enumerate(list(self._image.all_partitions()), 1):
            leaderless += state.leader < 0
            lacking += state.leader >= 0 and len(state.isr) < len(state.replicas)
            if place % SLICE == 0:
                await asyncio.sleep(0)
        return {
            "leaders": Degraded.of(
                f"{_many(leaderless, 'partition')} without a leader" if leaderless else ""
            ),
            "in sync": Degraded.of(
                f"{_many(lacking, 'partition')} with a replica that is not in sync" if lacking else ""
            ),
        }

    @route(
        "GET",
        "/api/v1/version",
        OWN,
        Contract("What this broker is", "service", {200: ShownVersion}, problems=()),
    )
    def _tell_version(self, request: Request) -> Answer:
        return answer(
            ShownVersion(
                version=self._version,
                api="v1",
                broker_id=self._image.broker_id,
                console=page_tag() if self._console else None,
            ),
            headers=NO_STORE,
        )


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"

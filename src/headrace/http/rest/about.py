"""Door: how this broker is, and what it is.

GET /api/v1/health       what is not well, since when, and what to do about it
GET /api/v1/version
"""

from __future__ import annotations

from typing import Literal

from headrace.cluster.image import ClusterImage
from headrace.core.ports import Clock
from headrace.http.ailments import Ailments, many
from headrace.http.console.assets import page_tag
from headrace.http.contract import Contract
from headrace.http.declared import Door, route
from headrace.http.health import Degraded
from headrace.http.messages import Answer, Request
from headrace.http.rest.forms.service import Finding, ShownHealth, ShownVersion
from headrace.http.rest.reading import answer
from headrace.security.rights import OWN

HINTS = {
    "broker": "Wait, or look into the broker's log.",
    "disk": "Clients’ writes are refused meanwhile, reading goes on: free space on the disk of the data directory, shorten the retention of a topic or delete one. Writes are taken again by themselves.",
    "log": "The disk does not take what is written: look at its health before anything else.",
    "tasks": "headrace doctor looks at each part; the broker's log has the traceback.",
    "coordinator": "See that etcd runs and is reachable from here (headrace doctor asks each of its members). Without it nothing can be created or elected, and a broker whose lease has run out serves no reads and no writes; it goes on by itself.",
    "replication": "headrace cluster partitions names the replicas and who does not follow.",
    "background": "The broker's log has the traceback; it is tried again by itself.",
    "leaders": "Nobody can read or write these: start that broker again. headrace cluster partitions --troubled names them.",
    "security": "headrace security status says more; a broker without its coordinator can't learn of changes.",
    "in sync": "They are served, and are a failure away from not being: start that broker again, or see why it is slow (headrace cluster status).",
}
NO_STORE = (("cache-control", "no-store"),)


class AboutDoor(Door):
    def __init__(
        self,
        clock: Clock,
        image: ClusterImage,
        ailments: Ailments,
        version: str,
        *,
        console: bool,
    ) -> None:
        self._clock = clock
        self._image = image
        self._ailments = ailments
        self._version = version
        self._console = console

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
    def _health(self, request: Request) -> Answer:
        findings = [
            Finding(
                check=name,
                severity="warning" if isinstance(trouble, Degraded) else "error",
                detail=str(trouble),
                since_ms=since_ms,
                hint=HINTS.get(name, ""),
            )
            for name, (trouble, since_ms) in self._ailments.found().items()
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
                checked_ms=self._clock.wall_ms(),
            ),
            headers=NO_STORE,
        )

    def _sentence(self, findings: list[Finding]) -> str:
        if not findings:
            brokers = len(self._image.live_brokers())
            topics = sum(not topic.internal for topic in self._image.topics.values())
            return f"All is well: {many(brokers, 'broker')}, {many(topics, 'topic')}."
        first = findings[0]
        rest = f" And {len(findings) - 1} more." if len(findings) > 1 else ""
        return f"{first.check.capitalize()}: {first.detail}.{rest}"

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

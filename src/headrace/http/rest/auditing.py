"""Door: who did what: the audit (A64) as rows, the newest first.

GET /api/v1/audit    ?from=&until=&principal=&event=&contains=&limit=&cursor=

A look into the topic `__audit` with the rights of that topic: Read on it and Describe on the cluster (A41). Changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from headrace.cluster.image import ClusterImage
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.ids import TopicPartition
from headrace.core.ports import Clock
from headrace.http.contract import Contract, Param, whole
from headrace.http.declared import Door, route
from headrace.http.messages import Answer, Request
from headrace.http.rest.forms.happenings import AuditPage, AuditRow
from headrace.http.rest.forms.looking import SPAN
from headrace.http.rest.looking import SearchStep, decode_ranges, encode_ranges, ranges_of
from headrace.http.rest.reading import answer, invalid, number
from headrace.http.rest.records import RecordReader
from headrace.records.build import Record
from headrace.security.audit_log import AUDIT_TOPIC
from headrace.security.rights import CLUSTER, TOPIC, Operation, describe, needs, read

MAX_ROWS = 500
MAX_WORD = 1_000
TEXTS = (
    "event",
    "principal",
    "host",
    "mechanism",
    "operation",
    "resource",
    "name",
    "text",
    "rule",
    "request_id",
)


class AuditDoor(Door):
    def __init__(self, clock: Clock, image: ClusterImage, reader: RecordReader) -> None:
        self._clock = clock
        self._image = image
        self._reader = reader

    @route(
        "GET",
        "/api/v1/audit",
        needs(describe(CLUSTER)),
        Contract(
            "Who did what",
            "security",
            {200: AuditPage},
            "Logins, denials, changes of security, and what was changed in the console, with before and after. Needs Read on the topic `__audit` too.",
            query=(
                *SPAN,
                Param("principal", "only this one's, as in User:alice"),
                Param("event", "only these: login, login_failed, denied, change, console, …"),
                Param("contains", "only rows with this word"),
                Param("limit", "at most so many", whole(1, MAX_ROWS, 50)),
                Param("cursor", "next_cursor of the page before"),
            ),
            problems=(400, 403),
        ),
    )
    async def _list(self, request: Request) -> Answer:
        access = request.access
        if access is not None and access.refuses(Operation.READ, TOPIC, AUDIT_TOPIC):
            raise HeadraceError(ErrorKind.ACCESS_DENIED, f"needs {read(TOPIC)} {AUDIT_TOPIC}")
        limit = number(request, "limit", 50, 1, MAX_ROWS)
        wanted = _Wanted(request)
        if self._image.topic(AUDIT_TOPIC) is None:
            return answer(AuditPage(items=[], looked_at=0, next_cursor=None))
        places = [TopicPartition(AUDIT_TOPIC, each) for each in self._reader.partitions(AUDIT_TOPIC)]
        cursor = request.query.get("cursor")
        ranges = (
            await ranges_of(self._reader, request, places)
            if cursor is None
            else decode_ranges(cursor, places)
        )
        step = SearchStep(self._clock, self._reader, wanted, limit, newest=True)
        rows = [_row(_line(one.record)) for one in await step.run(ranges)]
        left = any(one.high > one.low for one in step.left.values())
        return answer(
            AuditPage(
                items=rows, looked_at=step.looked_at, next_cursor=encode_ranges(step.left) if left else None
            )
        )


class _Wanted:
    """Which rows a request asks for."""

    def __init__(self, request: Request) -> None:
        query = request.query
        self._principal = query.get("principal", "")
        self._event = query.get("event", "")
        self._word = query.get("contains", "").lower()
        if len(self._word) > MAX_WORD:
            raise invalid(f"contains has at most {MAX_WORD} characters")

    def matches(self, tp: TopicPartition, record: Record) -> bool:
        line = _line(record)
        if self._principal and line.get("principal") != self._principal:
            return False
        if self._event and line.get("event") != self._event:
            return False
        return not self._word or self._word in bytes(record.value or b"").decode("utf-8", "replace").lower()


def _line(record: Record) -> Mapping[str, object]:
    """Brokers alone write it; one of another version may say more or less."""
    try:
        found = msgspec.json.decode(bytes(record.value or b""))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}
    return found if isinstance(found, dict) else {}


def _row(line: Mapping[str, object]) -> AuditRow:
    return AuditRow(
        at_ms=_whole(line, "at_ms", 0),
        broker=_whole(line, "broker", -1),
        count=_whole(line, "count", 1),
        before=_texts(line, "before"),
        after=_texts(line, "after"),
        **{name: str(line.get(name, "")) for name in TEXTS},
    )


def _whole(line: Mapping[str, object], name: str, otherwise: int) -> int:
    found = line.get(name, otherwise)
    return found if isinstance(found, int) else otherwise


def _texts(line: Mapping[str, object], name: str) -> dict[str, str]:
    found = line.get(name)
    return {str(key): str(value) for key, value in found.items()} if isinstance(found, dict) else {}

"""Driver: one queue over REST, for the SDK's workers and for the driver of a Spark job: send, receive, acknowledge, give back, extend.

Blocking, with a connection of its own. A broken connection is opened again once: every request here may be sent twice (a
message that was received and not heard of becomes visible again when its time is over).
"""

from __future__ import annotations

import http.client
import json
import ssl
import urllib.parse
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from headrace.client.queue_records import in_requests
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.ids import TopicPartition

_SECONDS = 75.0
_OK, _REFUSED = 300, 500
_SETTLE_AT_ONCE = 1000
_DETAIL = 1000
"""Characters of a reason that the broker takes."""


class Received(NamedTuple):
    """What was handed out: where it lies in the log, and what to say when it is done."""

    tp: TopicPartition
    offset: int
    receipt: str
    id: str
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    delivery: int
    """How often it was handed out, this time included."""


class QueueClient:
    def __init__(
        self,
        url: str,
        queue: str,
        token: str | None = None,
        *,
        login: tuple[str, str] | None = None,
        tls_ca: str = "",
    ) -> None:
        """`login` is user and password; `tls_ca` the certificate to trust."""
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise HeadraceError(
                ErrorKind.INVALID_PARAMETER, f'"{url}" is not the address of a broker', "http://host:9324"
            )
        self._connection = _connection(parts, tls_ca)
        self._url = url
        self._queue = f"/queues/{urllib.parse.quote(queue, safe='')}"
        self._headers = {"content-type": "application/json", "x-headrace-client": "python"}
        if token:
            self._headers["authorization"] = f"Bearer {token}"
        elif login:
            self._headers["authorization"] = f"Basic {b64encode(':'.join(login).encode()).decode()}"

    def receive(self, count: int, visibility_ms: int, wait_ms: int) -> list[Received]:
        query = f"?max={count}&visibility={visibility_ms}ms&wait={wait_ms}ms"
        status, body = self._ask("POST", f"{self._queue}/receive{query}")
        if status >= _OK:
            raise _refusal(status, body)
        return [_message(item) for item in body["items"]]

    def send(self, record: dict[str, Any], headers: Mapping[str, str] | None = None) -> str:
        """One message, in REST's words for it, with these headers of the request. Returns its id."""
        status, body = self._ask("POST", f"{self._queue}/messages", record, headers)
        if status >= _OK:
            raise _refusal(status, body)
        return str(body["message_id"])

    def send_all(self, records: Sequence[dict[str, Any]]) -> list[str]:
        """In order, as many at once as a request takes. Returns their ids."""
        ids: list[str] = []
        for some in in_requests(records):
            status, body = self._ask("POST", f"{self._queue}/batch", {"records": some})
            if status >= _OK:
                raise _refusal(status, body)
            ids += [str(item["message_id"]) for item in body["items"]]
        return ids

    def schedule(self, wanted: dict[str, Any]) -> int:
        """Returns when it is sent first."""
        status, body = self._ask("POST", "/api/v1/schedules", wanted)
        if status >= _OK:
            raise _refusal(status, body)
        return int(body["next_ms"])

    def unschedule(self, name: str) -> None:
        status, body = self._ask("DELETE", f"/api/v1/schedules/{urllib.parse.quote(name, safe='')}")
        if status >= _OK:
            raise _refusal(status, body)

    def settle(
        self,
        *,
        ack: Sequence[str] = (),
        give_back: Sequence[str] = (),
        reject: Sequence[str] = (),
        extend: Sequence[str] = (),
        visibility_ms: int = 0,
        delay_ms: int | None = None,
        detail: str = "",
    ) -> set[str]:
        """Say what became of messages, by their receipts. Those that are returned are not valid any more.

        What is given back is handed out again, after `delay_ms` or as the queue's own policy says, or becomes a dead letter; what is
        rejected becomes one at once, with `detail` as its reason."""
        refused: set[str] = set()
        for how, receipts in (("ack", ack), ("nack", give_back), ("reject", reject), ("extend", extend)):
            for first in range(0, len(receipts), _SETTLE_AT_ONCE):
                wanted: dict[str, Any] = {how: list(receipts[first : first + _SETTLE_AT_ONCE])}
                if how == "extend":
                    wanted["visibility"] = f"{visibility_ms}ms"
                if how == "nack" and delay_ms is not None:
                    wanted["delay"] = f"{delay_ms}ms"
                if how in ("nack", "reject") and detail:
                    wanted["detail"] = detail[:_DETAIL]
                status, body = self._ask("POST", f"{self._queue}/settle", wanted)
                if status >= _OK:
                    raise _refusal(status, body)
                refused.update(row["receipt"] for row in body["refused"])
        return refused

    def is_done(self, message_id: str) -> bool:
        """Whether nobody will be handed this message again."""
        status, body = self._ask("GET", f"{self._queue}/messages/{message_id}/status")
        return status == http.client.NOT_FOUND or (status < _OK and body["state"] in ("done", "dying"))

    def left(self, topic: str, partition: int) -> list[tuple[int, int]]:
        """The offsets of a partition that are not done, as runs: first and end of each."""
        runs: list[tuple[int, int]] = []
        start: int | None = 0
        while start is not None:
            query = f"?topic={urllib.parse.quote(topic, safe='')}&partition={partition}&from={start}"
            status, body = self._ask("GET", f"{self._queue}/left{query}")
            if status >= _OK:
                raise _refusal(status, body)
            runs += [(first, end) for first, end in body["runs"]]
            start = body["next"]
        return runs

    def queues(self) -> list[dict[str, Any]]:
        status, body = self._ask("GET", "/api/v1/queues")
        if status >= _OK:
            raise _refusal(status, body)
        found: list[dict[str, Any]] = body["items"]
        return found

    def _ask(
        self,
        method: str,
        path: str,
        given: dict[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, Any]:
        body = None if given is None else json.dumps(given)
        sent = self._headers if headers is None else {**self._headers, **headers}
        for last in (False, True):
            try:
                self._connection.request(method, path, body, headers=sent)
                answer = self._connection.getresponse()
                raw = answer.read()
                return answer.status, json.loads(raw) if raw else None
            except (OSError, http.client.HTTPException, ValueError) as problem:
                self._connection.close()
                if last:
                    raise HeadraceError(
                        ErrorKind.NETWORK_EXCEPTION, f"{self._url} can't be reached: {problem}"
                    ) from problem
        raise AssertionError("unreachable")

    def close(self) -> None:
        self._connection.close()


def _connection(parts: urllib.parse.SplitResult, tls_ca: str) -> http.client.HTTPConnection:
    host, port = parts.hostname or "", parts.port or 9324
    if parts.scheme == "http":
        return http.client.HTTPConnection(host, port, timeout=_SECONDS)
    context = ssl.create_default_context(cafile=tls_ca or None)
    return http.client.HTTPSConnection(host, port, timeout=_SECONDS, context=context)


def _message(item: dict[str, Any]) -> Received:
    return Received(
        TopicPartition(item["topic"], item["partition"]),
        item["offset"],
        item["receipt"],
        item["message_id"],
        item["timestamp_ms"],
        _bytes(item["key"]),
        _bytes(item["value"]),
        tuple(
            (name, _bytes(one))
            for name, value in item["headers"].items()
            for one in (value if isinstance(value, list) else (value,))
        ),
        item["delivery"],
    )


def _bytes(shown: Any) -> bytes | None:
    """REST shows bytes as text, or as {"base64": …} when they are none."""
    if shown is None:
        return None
    return shown.encode() if isinstance(shown, str) else b64decode(shown["base64"])


def _refusal(status: int, body: Any) -> HeadraceError:
    problem = body if isinstance(body, dict) else {}
    detail = problem.get("detail") or problem.get("message") or problem.get("error") or f"HTTP {status}"
    kind = ErrorKind.NOT_FOUND if status == http.client.NOT_FOUND else ErrorKind.INVALID_REQUEST
    return HeadraceError(kind if status < _REFUSED else ErrorKind.UNKNOWN_SERVER_ERROR, str(detail))

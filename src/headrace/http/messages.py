"""Codec: HTTP requests and responses as values, and a response as bytes.

Invariant: nothing a handler puts into a response header can end the header (no CR, LF or NUL leaves this module),
so a value that came from a client cannot split a response.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import parse_qsl

from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.principals import Principal
from headrace.security.access import Access
from headrace.security.rights import Resource

MAX_QUERY_FIELDS = 256
MAX_REQUEST_ID_CHARS = 128
_MAX_CACHED_HEADS = 256

JSON = "application/json"
PROBLEM_JSON = "application/problem+json"
TEXT = "text/plain; charset=utf-8"


class Peer(NamedTuple):
    """Who is at the other end of the connection."""

    host: str
    port: int
    is_tls: bool
    certified_broker: int = -1
    """Which broker its certificate is of."""
    certified_user: Principal | None = None
    """Which user (A11)."""


class Request:
    """One request, whole: the body is read before the handler is called."""

    __slots__ = (
        "_query_pairs",
        "access",
        "body",
        "deadline_ms",
        "headers",
        "http_version",
        "method",
        "own_request_id",
        "params",
        "path",
        "peer",
        "query_string",
        "received_ms",
        "received_s",
        "route",
        "sender",
    )

    def __init__(
        self,
        method: str,
        path: str,
        query_string: str = "",
        headers: Mapping[bytes, bytes] | None = None,
        body: bytes = b"",
        params: Mapping[str, str] | None = None,
        peer: Peer = Peer("127.0.0.1", 0, False),  # noqa: B008 - an immutable value
        *,
        received_ms: int = 0,
        deadline_ms: int = 1 << 62,
        route: str = "",
        http_version: str = "1.1",
        request_id: str = "",
    ) -> None:
        self.method = method
        self.path = path
        """As sent, still percent-encoded: SigV4 signs the raw path (X19)."""
        self.query_string = query_string
        self.headers: Mapping[bytes, bytes] = headers if headers is not None else {}
        """Lower-case names; a repeated list header is joined with a comma."""
        self.body = body
        self.params: Mapping[str, str] = params if params is not None else {}
        self.peer = peer
        self.received_ms = received_ms
        self.received_s = 0.0
        """On the loop's clock, for latency."""
        self.deadline_ms = deadline_ms
        """On the monotonic clock; past it the server cancels the handler and answers 504."""
        self.route = route
        """The template that matched; empty when none did."""
        self.http_version = http_version
        self.own_request_id = request_id
        """Given by the server when the request is whole, for those who bring none."""
        self._query_pairs: list[tuple[str, str]] | None = None
        self.sender: Principal | None = None
        """The broker that passes it on; None for everybody else (peer_requests.py)."""
        self.access: Access | None = None
        """Who asks, and what they may; None in mode open (guarding.py)."""

    @property
    def agent(self) -> str:
        """What calls itself: `curl`, `Boto3`, `python-requests`."""
        return (
            self.headers.get(b"user-agent", b"")[:60].partition(b"/")[0].partition(b" ")[0].decode("latin-1")
        )

    def sees(self, resource: Resource, name: str) -> bool:
        """Whether a list shows it (A44)."""
        return self.access is None or self.access.sees(resource, name)

    def header(self, name: bytes, default: str = "") -> str:
        value = self.headers.get(name)
        return default if value is None else value.decode("latin-1")

    @property
    def query_pairs(self) -> list[tuple[str, str]]:
        if self._query_pairs is None:
            try:
                self._query_pairs = parse_qsl(
                    self.query_string,
                    keep_blank_values=True,
                    errors="strict",
                    max_num_fields=MAX_QUERY_FIELDS,
                )
            except ValueError as error:
                raise HeadraceError(
                    ErrorKind.INVALID_REQUEST, f"the query string is malformed: {error}"
                ) from None
        return self._query_pairs

    @property
    def query(self) -> dict[str, str]:
        """Single-valued parameters; a name given twice is refused, because two readers could pick two values."""
        found: dict[str, str] = {}
        for name, value in self.query_pairs:
            if name in found:
                raise HeadraceError(ErrorKind.INVALID_REQUEST, f"the query parameter {name!r} is given twice")
            found[name] = value
        return found

    @property
    def client_request_id(self) -> str:
        """The caller's X-Request-Id when it is short and printable, else empty (X28)."""
        given = self.headers.get(b"x-request-id")
        if given is None or len(given) > MAX_REQUEST_ID_CHARS:
            return ""
        text = given.decode("latin-1")
        return text if text.isascii() and text.isprintable() else ""

    @property
    def request_id(self) -> str:
        if b"x-request-id" not in self.headers:
            return self.own_request_id
        return self.client_request_id or self.own_request_id


class Response:
    """A whole answer. `headers` come in addition to content-type, content-length, date and connection."""

    __slots__ = ("body", "content_type", "headers", "status")

    def __init__(
        self,
        body: bytes = b"",
        status: int = 200,
        content_type: str = JSON,
        headers: Sequence[tuple[str, str]] = (),
    ) -> None:
        self.body = body
        self.status = status
        self.content_type = content_type
        self.headers = headers


class StreamingResponse:
    """An answer of unknown length. Each chunk waits until the client has taken the ones before it."""

    __slots__ = ("chunks", "content_type", "headers", "status")

    def __init__(
        self,
        chunks: AsyncIterator[bytes],
        status: int = 200,
        content_type: str = JSON,
        headers: Sequence[tuple[str, str]] = (),
    ) -> None:
        self.chunks = chunks
        self.status = status
        self.content_type = content_type
        self.headers = headers


Answer = Response | StreamingResponse
Handler = Callable[[Request], Answer | Awaitable[Answer]]
"""`async def` in general; a plain function that returns its answer is served without a task (hot path)."""


def reason_phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Unknown"


_head_cache: dict[tuple[int, str], bytes] = {}


def _status_and_type(status: int, content_type: str) -> bytes:
    key = (status, content_type)
    head = _head_cache.get(key)
    if head is None:
        lines = f"HTTP/1.1 {status} {reason_phrase(status)}\r\n"
        if content_type:
            lines += f"content-type: {checked_header_value(content_type)}\r\n"
        head = lines.encode("latin-1")
        if len(_head_cache) < _MAX_CACHED_HEADS:
            _head_cache[key] = head
    return head


def checked_header_value(value: str) -> str:
    if "\r" in value or "\n" in value or "\0" in value:
        raise ValueError("a response header value must not contain CR, LF or NUL")
    return value


def _header_lines(headers: Sequence[tuple[str, str]]) -> bytes:
    lines = "".join(
        f"{checked_header_value(name)}: {checked_header_value(value)}\r\n" for name, value in headers
    )
    return lines.encode("latin-1", "replace")


def encode_response(response: Response, *, fixed: bytes, keep_alive: bool, with_body: bool) -> bytes:
    """The bytes of a whole response; `fixed` is the server's date line. HEAD keeps the length, not the body."""
    status = response.status
    body = response.body
    kind = response.content_type if body or status == 200 else ""
    parts = [_head_cache.get((status, kind)) or _status_and_type(status, kind), fixed]
    if status != 204 and status != 304:
        parts.append(b"content-length: %d\r\n" % len(body))
    for name, value in response.headers:
        line = f"{name}: {value}"
        if "\r" in line or "\n" in line or "\0" in line:
            checked_header_value(line)
        parts.append(line.encode("latin-1", "replace") + b"\r\n")
    parts.append(b"\r\n" if keep_alive else b"connection: close\r\n\r\n")
    if body and with_body and status != 204 and status != 304:
        parts.append(body)
    return b"".join(parts)


def encode_stream_head(
    response: StreamingResponse, *, fixed: bytes, keep_alive: bool, chunked: bool
) -> bytes:
    parts = [_status_and_type(response.status, response.content_type), fixed]
    if chunked:
        parts.append(b"transfer-encoding: chunked\r\n")
    if response.headers:
        parts.append(_header_lines(response.headers))
    parts.append(b"\r\n" if keep_alive else b"connection: close\r\n\r\n")
    return b"".join(parts)


def encode_chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


LAST_CHUNK = b"0\r\n\r\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

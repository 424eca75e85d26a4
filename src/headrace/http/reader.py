"""Codec: bytes of one connection -> whole requests, strictly (X20).

llhttp (through httptools) refuses both lengths at once, repeated lengths, folded headers, bare line feeds and odd
chunk sizes. This module adds what it lets through: transfer codings other than chunked, other versions, repeated
singleton headers, missing Host, what a page of a stranger made a browser send (browsers.py), and every cap. After the first refusal no byte is looked at again, so bytes behind a
bad request can never become a request.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple, Protocol

import httptools

from headrace.core.ports import Buffer
from headrace.http.browsers import BrowserPolicy, BrowserRefusal, body_refusal, is_link_to_page
from headrace.http.messages import Handler, Peer, Request, Response
from headrace.http.plain_requests import read_plain
from headrace.http.problem import problem
from headrace.http.router import METHODS, NoRoute, Router, TooLarge

SLICE_BYTES = 16 * 1024
"""Input is parsed in slices, so that one read full of tiny requests cannot build thousands of them at once."""

_SINGLETONS = frozenset(
    (
        b"authorization", b"content-length", b"content-type", b"content-encoding", b"cookie", b"date", b"expect",
        b"host", b"idempotency-key", b"if-match", b"if-none-match", b"last-event-id", b"origin", b"range",
        b"sec-fetch-site", b"transfer-encoding", b"upgrade", b"x-request-id",
    )
)  # fmt: skip
_SINGLETON_PREFIX = b"x-amz-"  # SigV4 and the action name: two of them are two readings of one request (X19)

_METHODS = {method.encode(): method for method in METHODS}
_LOOKING = ("GET", "HEAD", "OPTIONS")


class ReadLimits(NamedTuple):
    max_header_bytes: int
    max_header_count: int
    max_target_bytes: int
    max_body_bytes: int


class RequestSink(Protocol):
    """Who gets what was read, in the order of the bytes."""

    def body_expected(self, byte_count: int, wants_continue: bool) -> None: ...

    def request_complete(self, request: Request, handler: Handler, keep_alive: bool) -> None: ...

    def refused(self, response: Response) -> None:
        """The last thing a connection hears: answer it and close."""
        ...


class RequestReader:
    __slots__ = (
        "_body", "_body_bytes", "_body_cap", "_browsers", "_framing_bytes", "_handler", "_header_bytes", "_header_count",
        "_headers", "_headers_done", "_is_chunked", "_keep_alive", "_limits", "_method", "_params", "_parser", "_path",
        "_peer", "_query", "_router", "_sink", "_target", "_template", "_too_large", "_version", "is_ended", "is_partial",
    )  # fmt: skip

    def __init__(
        self, sink: RequestSink, router: Router, limits: ReadLimits, peer: Peer, browsers: BrowserPolicy
    ) -> None:
        self._sink = sink
        self._browsers = browsers
        self._router = router
        self._limits = limits
        self._peer = peer
        self.is_ended = False
        """Nothing more is read: a refusal, or the last request of the connection."""
        self.is_partial = False
        """A request has begun and is not complete."""
        self._parser = httptools.HttpRequestParser(self)
        self.on_message_begin()
        self.is_partial = False

    def feed(self, data: Buffer) -> None:
        """At most SLICE_BYTES at a time; the caller cuts."""
        if self.is_ended or (type(data) is bytes and not self.is_partial and self._read_plain(data)):
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.is_ended = True  # the request itself was delivered; what follows is another protocol
        except httptools.HttpParserError as error:
            # Callback exceptions arrive wrapped; they are bugs of ours and must not look like a client's fault.
            if isinstance(error, httptools.HttpParserCallbackError) and error.__context__ is not None:
                raise error.__context__ from None
            self.refuse(400, "MALFORMED_HTTP", f"this is not HTTP/1.1: {error}")
        if self.is_partial and not self.is_ended:
            self._check_framing(len(data))

    def _read_plain(self, data: bytes) -> bool:
        """False, and nothing has happened, when llhttp must have a look."""
        limits = self._limits
        plain = read_plain(data, limits.max_header_bytes, limits.max_header_count)
        if plain is None:
            return False
        raw_method, target, headers, body = plain
        if len(target) > limits.max_target_bytes or self._browsers.refusal(headers) is not None:
            return False
        method = _METHODS[raw_method]
        self._path, _, query = target.decode("ascii").partition("?")
        if self._resolve(method, headers) is not None or len(body) > self._body_cap:
            return False
        request = Request(
            method, self._path, query, headers, body, self._params, self._peer, route=self._template
        )
        self._sink.request_complete(request, self._handler, True)
        return True

    def refuse(self, status: int, code: str, detail: str, hint: str = "") -> None:
        if not self.is_ended:
            self.is_ended = True
            self.is_partial = False
            self._sink.refused(problem(status, code, detail, hint=hint))

    def _refuse_body(self) -> None:
        if self._too_large is None:
            self.refuse(413, "PAYLOAD_TOO_LARGE", f"the body exceeds {self._body_cap} bytes")
        elif not self.is_ended:
            self.is_ended = True
            self.is_partial = False
            self._sink.refused(self._too_large(self._headers, self._body_cap))

    def _check_framing(self, fed: int) -> None:
        # Bytes that are neither a finished header nor body: an endless header line, endless chunk extensions.
        self._framing_bytes += fed
        allowed = self._limits.max_header_bytes + SLICE_BYTES
        if not self._headers_done:
            if self._framing_bytes > allowed:
                self.refuse(431, "HEADERS_TOO_LARGE", f"headers exceed {self._limits.max_header_bytes} bytes")
        elif self._is_chunked and self._framing_bytes > allowed + 9 * self._body_bytes:
            self.refuse(400, "MALFORMED_HTTP", "chunk framing outweighs the body")

    # --- httptools callbacks, in order ---

    def on_message_begin(self) -> None:
        self.is_partial = True
        self._target = b""
        self._headers: dict[bytes, bytes] = {}
        self._headers_done = False
        self._header_bytes = 0
        self._header_count = 0
        self._framing_bytes = 0
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._is_chunked = False

    def on_url(self, url: bytes) -> None:
        self._target += url
        if len(self._target) > self._limits.max_target_bytes:
            self.refuse(414, "URI_TOO_LONG", f"the path exceeds {self._limits.max_target_bytes} bytes")

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.is_ended:
            return
        self._header_bytes += len(name) + len(value)
        self._header_count += 1
        if self._header_bytes > self._limits.max_header_bytes:
            self.refuse(431, "HEADERS_TOO_LARGE", f"headers exceed {self._limits.max_header_bytes} bytes")
            return
        if self._header_count > self._limits.max_header_count:
            self.refuse(431, "TOO_MANY_HEADERS", f"more than {self._limits.max_header_count} headers")
            return
        if self._headers_done:
            return  # a trailer: counted, and dropped so that it cannot pose as a header
        name = name.lower()
        value = value.strip()
        known = self._headers.get(name)
        if known is None:
            self._headers[name] = value
        elif name in _SINGLETONS or name.startswith(_SINGLETON_PREFIX):
            self.refuse(400, "REPEATED_HEADER", f"the header {name.decode('latin-1')} is given twice")
        else:
            self._headers[name] = known + b", " + value

    def on_headers_complete(self) -> None:
        self._headers_done = True
        if self.is_ended:
            return
        parser = self._parser
        headers = self._headers
        self._version = parser.get_http_version()
        # An HTTP/1.0 client that keeps alive waits for a header that nobody sends any more; it gets a close.
        self._keep_alive = self._version == "1.1" and parser.should_keep_alive()
        raw_method = parser.get_method()
        method = _METHODS.get(raw_method)
        if self._version not in ("1.1", "1.0"):
            return self.refuse(505, "HTTP_VERSION_NOT_SUPPORTED", "HTTP/1.1 and HTTP/1.0 are spoken here")
        if method is None:
            return self.refuse(501, "METHOD_NOT_IMPLEMENTED", f"{raw_method.decode('latin-1')} is not served")
        if self._version == "1.1" and b"host" not in headers:
            return self.refuse(400, "MISSING_HOST", "an HTTP/1.1 request names its host")
        is_link = is_link_to_page(method, self._target.decode("ascii"), headers)
        refusal = self._browsers.refusal(headers, is_link=is_link)
        if refusal is not None:
            return self.refuse(*refusal)
        self._method = method
        self._path, _, self._query = self._target.decode("ascii").partition("?")
        if not self._path.startswith("/"):
            authority, self._path = _parts_of_absolute(self._path)
            if authority:  # it outranks Host
                refusal = self._browsers.refusal({**headers, b"host": authority.encode()})
        refusal = refusal or self._resolve(method, headers)
        if refusal is not None:
            return self.refuse(*refusal)
        self._read_framing(headers)

    def _resolve(self, method: str, headers: dict[bytes, bytes]) -> BrowserRefusal | None:
        found = self._router.resolve(method, self._path)
        if isinstance(found, NoRoute):
            self._handler: Handler = partial(_answer_no_route, found)
            self._template = ""
            self._params = None
            self._body_cap = self._limits.max_body_bytes
            self._too_large: TooLarge | None = None
            return None
        route = found.route
        self._handler = route.handler
        self._template = route.template
        self._params = found.params
        self._too_large = route.too_large
        cap = route.max_body_bytes
        self._body_cap = self._limits.max_body_bytes if cap is None else cap
        if route.any_body or method in _LOOKING:
            return None
        length = headers.get(b"content-length", b"0")
        return body_refusal(headers, has_body=length.strip(b"0") != b"" or b"transfer-encoding" in headers)

    def _read_framing(self, headers: dict[bytes, bytes]) -> None:
        length = 0
        coding = headers.get(b"transfer-encoding")
        if coding is not None:
            if self._version == "1.0":
                return self.refuse(400, "MALFORMED_HTTP", "HTTP/1.0 has no transfer-encoding")
            if coding.lower() != b"chunked":
                return self.refuse(501, "TRANSFER_CODING_NOT_IMPLEMENTED", "chunked is the one coding served")
            self._is_chunked = True
            length = self._body_cap
        else:
            declared = headers.get(b"content-length")
            if declared is not None:
                length = int(declared)  # llhttp let digits through and nothing else
                if length > self._body_cap:
                    return self._refuse_body()
        if self._parser.should_upgrade():
            # llhttp ends the message here; with a body it would read the body as what comes after the upgrade.
            if length or self._is_chunked:
                return self.refuse(400, "UPGRADE_WITH_BODY", "an upgrade request has no body here")
            self._keep_alive = False
        expectation = headers.get(b"expect")
        wants_continue = False
        if expectation is not None and self._version == "1.1":
            if expectation.lower() != b"100-continue":
                return self.refuse(417, "EXPECTATION_FAILED", "100-continue is the one expectation met")
            wants_continue = length > 0
            if wants_continue and not self._template:
                return self.refuse(404, "NOT_FOUND", "there is nothing at this path and method")
        if length:
            self._sink.body_expected(length, wants_continue)
        return None

    def on_body(self, data: bytes) -> None:
        if self.is_ended:
            return
        self._body_bytes += len(data)
        if self._body_bytes > self._body_cap:
            self._refuse_body()
            return
        self._body.append(data)

    def on_message_complete(self) -> None:
        if self.is_ended:
            return
        self.is_partial = False
        chunks = self._body
        body = b"" if not chunks else chunks[0] if len(chunks) == 1 else b"".join(chunks)
        request = Request(
            self._method,
            self._path,
            self._query,
            self._headers,
            body,
            self._params,
            self._peer,
            route=self._template,
            http_version=self._version,
        )
        keep_alive = self._keep_alive
        if not keep_alive:
            self.is_ended = True
        self._sink.request_complete(request, self._handler, keep_alive)


def _parts_of_absolute(target: str) -> tuple[str, str]:
    """`http://host/path` (a proxy's form) -> `host`, `/path`; `*` stays, and finds no route."""
    _, separator, rest = target.partition("://")
    if not separator:
        return "", target
    authority, _, path = rest.partition("/")
    return authority, "/" + path


def _answer_no_route(found: NoRoute, request: Request) -> Response:
    if found.is_malformed:
        return problem(
            400, "MALFORMED_PATH", "a path value is not printable UTF-8", request_id=request.request_id
        )
    if not found.allowed:
        return problem(
            404, "NOT_FOUND", "there is nothing at this path",
            hint="GET /openapi.json lists what there is.", request_id=request.request_id, instance=request.path,
        )  # fmt: skip
    allow = (("allow", ", ".join((*found.allowed, "OPTIONS"))),)
    if request.method == "OPTIONS":
        return Response(b"", 204, "", allow)
    return problem(
        405, "METHOD_NOT_ALLOWED", f"{request.method} is not allowed here; {', '.join(found.allowed)} is",
        request_id=request.request_id, instance=request.path, headers=allow,
    )  # fmt: skip

"""X20: what the HTTP reader takes, what it refuses, and that cutting the bytes anywhere changes nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.http.browsers import BrowserPolicy
from headrace.http.messages import Handler, Peer, Request, Response
from headrace.http.reader import ReadLimits, RequestReader
from headrace.http.router import Router
from headrace.security.rights import OWN

LIMITS = ReadLimits(max_header_bytes=4096, max_header_count=20, max_target_bytes=512, max_body_bytes=1000)
POLICY = BrowserPolicy()


class Sink:
    def __init__(self) -> None:
        self.requests: list[tuple[str, str, bytes, bool]] = []
        self.whole: list[Request] = []
        self.refusals: list[int] = []
        self.expected: list[tuple[int, bool]] = []

    def body_expected(self, byte_count: int, wants_continue: bool) -> None:
        self.expected.append((byte_count, wants_continue))

    def request_complete(self, request: Request, handler: Handler, keep_alive: bool) -> None:
        self.requests.append((request.method, request.path, request.body, keep_alive))
        self.whole.append(request)

    def refused(self, response: Response) -> None:
        self.refusals.append(response.status)


def router() -> Router:
    routes = Router()
    for method in ("GET", "POST", "PUT", "DELETE"):
        routes.add(method, "/", lambda _request: Response(), OWN, any_body=True)
    routes.add("POST", "/small", lambda _request: Response(), OWN, max_body_bytes=4, any_body=True)
    return routes


def read(data: bytes, step: int | None = None, limits: ReadLimits = LIMITS) -> Sink:
    sink = Sink()
    reader = RequestReader(sink, router(), limits, Peer("127.0.0.1", 1, False), POLICY)
    for start in range(0, len(data), step or len(data)):
        reader.feed(data[start : start + (step or len(data))])
    return sink


HOST = b"Host: localhost\r\n"

# Each is one request as one server would read it and another as a second server would; none may reach a handler.
SMUGGLING = {
    "length and coding": b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "coding and length": b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    "two equal lengths": b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
    "two lengths": b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
    "length list": b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 5, 5\r\n\r\nhello",
    "signed length": b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: +5\r\n\r\nhello",
    "negative length": b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: -5\r\n\r\nhello",
    "hex length": b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 0x5\r\n\r\nhello",
    "underscored digits": b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 1_0\r\n\r\nhello",
    "overflowing length": b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 18446744073709551621\r\n\r\nhello",
    "empty length": b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length:\r\n\r\nhello",
    "space before colon": b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length : 5\r\n\r\nhello",
    "identity": b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: identity\r\n\r\nhello",
    "chunked not last": b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "gzip then chunked": b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "chunked twice": b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "almost chunked": b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "vertical tab": b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
    "coding in 1.0": b"POST / HTTP/1.0\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "folded header": b"GET / HTTP/1.1\r\n" + HOST + b"X: b\r\n folded\r\n\r\n",
    "folded length": b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length:\r\n 5\r\n\r\nhello",
    "space before first header": b"GET / HTTP/1.1\r\n Host: localhost\r\n\r\n",
    "bare line feeds": b"GET / HTTP/1.1\nHost: localhost\n\n",
    "bare line feed in headers": b"GET / HTTP/1.1\r\nHost: localhost\nX: b\r\n\r\n",
    "bare carriage return": b"GET / HTTP/1.1\r\nHost: localhost\rX: b\r\n\r\n",
    "nul in value": b"GET / HTTP/1.1\r\n" + HOST + b"X: b\x00c\r\n\r\n",
    "nul in name": b"GET / HTTP/1.1\r\n" + HOST + b"X\x00: b\r\n\r\n",
    "empty name": b"GET / HTTP/1.1\r\n" + HOST + b": b\r\n\r\n",
    "no colon": b"GET / HTTP/1.1\r\n" + HOST + b"foo\r\n\r\n",
    "chunk size with space": b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n5 \r\nhello\r\n0\r\n\r\n",
    "chunk size with 0x": b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n0\r\n\r\n",
    "chunk line feed": b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\n",
    "chunk without end": b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhelloXX0\r\n\r\n",
    "chunk overflow": b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff1\r\nhello",
    "negative chunk": b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n-1\r\nhello",
    "two hosts": b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: b\r\n\r\n",
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "two actions": b"POST / HTTP/1.1\r\n" + HOST + b"X-Amz-Target: a\r\nX-Amz-Target: b\r\n\r\n",
    "two authorizations": b"GET / HTTP/1.1\r\n" + HOST + b"Authorization: a\r\nAuthorization: b\r\n\r\n",
    "http 0.9": b"GET /\r\n\r\n",
    "http 2": b"GET / HTTP/2.0\r\n" + HOST + b"\r\n",
    "http 2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "http 1.2": b"GET / HTTP/1.2\r\n" + HOST + b"\r\n",
    "space in path": b"GET /a b HTTP/1.1\r\n" + HOST + b"\r\n",
    "nul in path": b"GET /\x00 HTTP/1.1\r\n" + HOST + b"\r\n",
    "high byte in path": b"GET /\xff HTTP/1.1\r\n" + HOST + b"\r\n",
    "unknown method": b"FOO / HTTP/1.1\r\n" + HOST + b"\r\n",
    "method not allowed here": b"TRACE / HTTP/1.1\r\n" + HOST + b"\r\n",
    "connect": b"CONNECT a:1 HTTP/1.1\r\n" + HOST + b"\r\n",
    "tls hello": b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03",
    "upgrade with a body": b"POST / HTTP/1.1\r\n" + HOST + b"Connection: upgrade\r\nUpgrade: h2c\r\nContent-Length: 3\r\n\r\nabc",
    "unknown expectation": b"POST / HTTP/1.1\r\n" + HOST + b"Expect: magic\r\nContent-Length: 3\r\n\r\nabc",
}  # fmt: skip
NEXT = b"GET /after HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.mark.parametrize("name", SMUGGLING)
@pytest.mark.parametrize("step", [None, 1, 7])
def test_x20_ambiguous_request_is_refused_and_nothing_behind_it_is_read(name: str, step: int | None) -> None:
    sink = read(SMUGGLING[name] + NEXT, step)
    assert sink.requests == []
    assert len(sink.refusals) == 1
    assert 400 <= sink.refusals[0] < 600


@pytest.mark.parametrize(
    ("name", "status"),
    [("gzip then chunked", 501), ("http 2", 505), ("connect", 501), ("method not allowed here", 501),
     ("unknown expectation", 417), ("no host", 400)],
)  # fmt: skip
def test_refusals_say_what_is_wrong(name: str, status: int) -> None:
    assert read(SMUGGLING[name]).refusals == [status]


def test_a_bad_request_does_not_undo_the_good_one_before_it() -> None:
    sink = read(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" + SMUGGLING["two hosts"])
    assert sink.requests == [("GET", "/", b"", True)]
    assert sink.refusals == [400]


def test_pipelined_requests_come_out_in_order() -> None:
    data = b"".join(
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%b" % (n, b"x" * n)
        for n in range(5)
    )
    assert [len(body) for _, _, body, _ in read(data, 3).requests] == [0, 1, 2, 3, 4]


def test_chunked_body_extensions_and_trailers() -> None:
    head = b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    sink = read(head + b"3;x=1\r\nabc\r\n2\r\nde\r\n0\r\nX-Amz-Target: evil\r\n\r\n", 1)
    assert sink.requests == [("POST", "/", b"abcde", True)]
    assert b"x-amz-target" not in sink.whole[0].headers, "a trailer must not pose as a header"
    assert sink.expected == [(LIMITS.max_body_bytes, False)]


def test_repeated_list_headers_are_joined() -> None:
    sink = read(b"GET / HTTP/1.1\r\nHost: localhost\r\nAccept: x\r\naccept:  y \r\n\r\n")
    assert sink.whole[0].header(b"accept") == "x, y"


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET /" + b"a" * 600 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 414),
        (
            b"GET / HTTP/1.1\r\nHost: localhost\r\n"
            + b"".join(b"H%d: v\r\n" % n for n in range(30))
            + b"\r\n",
            431,
        ),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 5000 + b"\r\n\r\n", 431),
        (b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1001\r\n\r\n", 413),
        (b"POST /small HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n", 413),
        (
            b"POST /small HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
            413,
        ),
    ],
)
def test_caps(data: bytes, status: int) -> None:
    assert read(data).refusals == [status]
    assert read(data, 1).refusals == [status]


def test_endless_header_line_is_refused_before_it_ends() -> None:
    sink = Sink()
    reader = RequestReader(sink, router(), LIMITS, Peer("", 0, False), POLICY)
    reader.feed(b"GET / HTTP/1.1\r\nX: ")
    for _ in range(100):
        reader.feed(b"y" * 1000)
    assert sink.refusals == [431]


def test_endless_chunk_extension_is_refused() -> None:
    sink = Sink()
    reader = RequestReader(sink, router(), LIMITS, Peer("", 0, False), POLICY)
    reader.feed(b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1;")
    for _ in range(100):
        reader.feed(b"y" * 1000)
    assert sink.refusals == [400]


def test_upgrade_is_ignored_and_the_connection_ends_after_it() -> None:
    sink = read(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n" + NEXT)
    assert sink.requests == [("GET", "/", b"", False)]
    assert sink.refusals == []


def test_nothing_is_read_after_connection_close() -> None:
    sink = read(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" + NEXT)
    assert sink.requests == [("GET", "/", b"", False)]


def test_absolute_form_and_query() -> None:
    sink = read(b"GET http://127.0.0.1:9/?a=1&b=%2F HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert sink.whole[0].path == "/"
    assert sink.whole[0].query == {"a": "1", "b": "/"}
    sink = read(b"GET http://rebound.example/ HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert sink.refusals == [421] and not sink.requests, "the name in the target outranks Host"


VALID = st.sampled_from(
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        b"GET /nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ]
)


@given(st.lists(VALID, max_size=4), st.binary(max_size=60), st.integers(1, 50))
def test_value_or_refusal_and_cutting_changes_nothing(requests: list[bytes], junk: bytes, step: int) -> None:
    data = b"".join(requests) + junk
    if not data:
        return
    whole, cut = read(data), read(data, step)
    assert whole.requests == cut.requests
    assert whole.refusals == cut.refusals

"""What plain_requests reads in one go is what llhttp reads, header by header (X20): same request, and no byte it would refuse."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headrace.http import reader as reading
from headrace.http.browsers import BrowserPolicy
from headrace.http.messages import Handler, Peer, Request, Response
from headrace.http.plain_requests import read_plain
from headrace.http.reader import ReadLimits, RequestReader
from headrace.http.router import Router
from headrace.security.rights import OWN

LIMITS = ReadLimits(600, 9, 60, 64)


class Sink:
    def __init__(self) -> None:
        self.heard: list[Any] = []

    def body_expected(self, byte_count: int, wants_continue: bool) -> None:
        pass

    def request_complete(self, request: Request, handler: Handler, keep_alive: bool) -> None:
        params = dict(request.params)
        self.heard.append((request.method, request.path, request.query_string, dict(request.headers), request.body,
                           params, request.route, request.http_version, keep_alive))  # fmt: skip

    def refused(self, response: Response) -> None:
        self.heard.append((response.status, response.body))


def heard(data: bytes) -> list[Any]:
    router = Router()
    router.add("POST", "/", lambda request: Response(), OWN)
    router.add("GET", "/things/{name}", lambda request: Response(), OWN)
    router.add("DELETE", "/things/{name}", lambda request: Response(), OWN)
    sink = Sink()
    RequestReader(sink, router, LIMITS, Peer("127.0.0.1", 1, False), BrowserPolicy()).feed(data)
    return sink.heard


HEADS = st.sampled_from(
    (b"POST / HTTP/1.1", b"GET /things/a?x=1 HTTP/1.1", b"DELETE /things/%41 HTTP/1.1", b"PUT /nowhere HTTP/1.1",
     b"HEAD / HTTP/1.1", b"post / HTTP/1.1", b"GET things HTTP/1.1", b"GET http://localhost/things/a HTTP/1.1",
     b"GET / HTTP/1.0", b"GET /" + b"a" * 70 + b" HTTP/1.1", b"GET  / HTTP/1.1")
)  # fmt: skip
FIELDS = st.sampled_from(
    (b"Host: localhost", b"host:localhost", b"Host: evil.example", b"Content-Length: 5", b"content-length: 05",
     b"Content-Length: 0", b"Content-Length: +5", b"Content-Length: 5, 5", b"Content-Length: 99", b"Content-Type: application/json",
     b"X-Amz-Target: AmazonSQS.SendMessage", b"x-amz-target: twice", b"Connection: close", b"Connection: keep-alive",
     b"Transfer-Encoding: chunked", b"Expect: 100-continue", b"Upgrade: websocket", b"Origin: http://evil.example",
     b"Accept: a", b"Accept: b", b"X: \x00", b"X: \xff", b"X:  padded ", b"X:", b"X : y", b" folded", b"X: a\tb", b": y", b"a" * 80 + b": " + b"b" * 80)
)  # fmt: skip


@settings(max_examples=600)
@given(HEADS, st.lists(FIELDS, max_size=11), st.sampled_from((b"", b"hello", b"hell", b"hello GET", b"0\r\n\r\n")),
       st.sampled_from((b"\r\n", b"\r\n", b"\r\n", b"\n")))  # fmt: skip
@example(b"POST / HTTP/1.1", [b"Host: localhost", b"Content-Length: 5"], b"hello", b"\r\n")
def test_both_readers_hear_the_same(head: bytes, fields: list[bytes], body: bytes, end: bytes) -> None:
    data = end.join((head, *fields)) + end + end + body
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "read_plain", lambda *arguments: None)
        slowly = heard(data)
    assert heard(data) == slowly


@given(st.binary(max_size=5), st.integers(0, 120), st.integers(0, 5))
def test_a_torn_plain_request_is_heard_the_same(junk: bytes, at: int, cut: int) -> None:
    whole = b"POST / HTTP/1.1\r\nHost: localhost\r\nX-Amz-Target: AmazonSQS.SendMessage\r\nContent-Length: 5\r\n\r\nhello"
    data = whole[:at] + junk + whole[at + cut :]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "read_plain", lambda *arguments: None)
        slowly = heard(data)
    assert heard(data) == slowly


def test_what_an_sdk_sends_is_plain() -> None:
    data = b"POST / HTTP/1.1\r\nHost: localhost:9324\r\nX-Amz-Target: AmazonSQS.SendMessage\r\nContent-Length: 2\r\n\r\n{}"
    plain = read_plain(data, 4096, 100)
    assert plain is not None
    assert plain.headers[b"x-amz-target"] == b"AmazonSQS.SendMessage" and plain.body == b"{}"

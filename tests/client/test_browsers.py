"""F29, A6, W17: the browser is not the user. Raw requests against the shipped broker: what a page of somebody else can make a
browser send is refused on every path and method, nothing changes by GET, and programs notice nothing.

The same in a real browser: test_chromium.py.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from headrace.testing.broker_process import BrokerProcess

pytestmark = pytest.mark.client

EVIL = "https://evil.example"
FORM = "application/x-www-form-urlencoded"
PATHS = ("/", "/metrics", "/livez", "/readyz", "/openapi.json", "/api/v1/topics", "/topics/t/records", "/nowhere",
         "/queues/q/messages?peek", "/queues/q/stream", "/000000000000/q")  # fmt: skip
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


class Got(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def problem(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)
        return found


def ask(
    broker: BrokerProcess, method: str, path: str, headers: dict[str, str] | None = None, body: bytes = b""
) -> Got:
    """Exactly these headers, a Host of ours, and nothing that a library would add."""
    connection = http.client.HTTPConnection("127.0.0.1", broker.http_port, timeout=30)
    given = {"Host": f"localhost:{broker.http_port}", **(headers or {})}
    try:
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        for name, value in given.items():
            connection.putheader(name, value)
        if body or method in ("POST", "PUT", "PATCH"):
            connection.putheader("content-length", str(len(body)))
        connection.endheaders(body or None)
        response = connection.getresponse()
        is_endless = "event-stream" in response.headers.get("content-type", "") and method != "HEAD"
        content = b"" if is_endless else response.read()
        return Got(response.status, {k.lower(): v for k, v in response.headers.items()}, content)
    finally:
        connection.close()


@pytest.fixture(scope="module")
def own() -> Iterator[BrokerProcess]:
    settings = {
        "HEADRACE_ADVERTISED_HOST": "Broker-1.corp.example",
        "HEADRACE_ALLOWED_HOSTS": "queue.example, .inside.example",
        "HEADRACE_ALLOWED_ORIGINS": "https://shop.example,http://localhost:3000",
    }
    with BrokerProcess(environment=settings) as running:
        yield running


@pytest.fixture
def queue(broker: BrokerProcess, topic: str) -> str:
    json_type = {"content-type": "application/json"}
    body = json.dumps({"name": topic}).encode()
    assert ask(broker, "POST", "/api/v1/queues", json_type, body).status == 201
    assert ask(broker, "POST", f"/queues/{topic}/messages", {}, b"precious").status == 201
    return topic


def untouched(broker: BrokerProcess, queue: str) -> bool:
    shown = ask(broker, "GET", f"/api/v1/queues/{queue}").problem
    return (shown["ready"], shown["in_flight"]) == (1, 0)


@pytest.mark.parametrize("method", METHODS)
def test_f29_a_rebound_name_gets_nothing_on_any_path(broker: BrokerProcess, method: str) -> None:
    for path in PATHS:
        got = ask(broker, method, path, {"Host": "evil.example:9324"})
        assert got.status == 421, (method, path)
        if method != "HEAD":
            assert got.problem["code"] == "MISDIRECTED_REQUEST" and "--allowed-hosts" in got.problem["hint"]


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": EVIL},
        {"origin": "null"},
        {"origin": "http://localhost:3000"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"},
        {"sec-fetch-site": "anything else"},
    ],
    ids=lambda headers: " ".join(headers.values()),
)
@pytest.mark.parametrize("method", METHODS)
def test_f29_a_page_of_another_origin_gets_nothing(
    broker: BrokerProcess, method: str, headers: dict[str, str]
) -> None:
    """A6: on every method, streams and preflights included; and the answer lets no page read it. A link may lead to the console's page,
    which says the same to everybody."""
    for path in PATHS:
        accept = {"accept": "text/event-stream"} if method == "GET" else {}
        got = ask(broker, method, path, {**headers, **accept})
        is_link_to_page = method == "GET" and path == "/" and headers.get("sec-fetch-dest") == "document"
        assert got.status == (200 if is_link_to_page else 403), (method, path)
        assert not [name for name in got.headers if name.startswith("access-control-")]


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:1", "a.localhost", "127.0.0.1:9", "[::1]:9324", "10.1.2.3"]
)
def test_f29_our_own_names_and_any_address_are_answered(broker: BrokerProcess, host: str) -> None:
    """An address can't be rebound. The port is not looked at: it may be forwarded."""
    assert ask(broker, "GET", "/livez", {"Host": host}).status == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("broker-1.corp.example", 200),
        ("BROKER-1.corp.example.:9324", 200),
        ("queue.example", 200),
        ("a.inside.example", 200),
        ("inside.example.evil", 421),
        ("evilinside.example", 421),
        ("queue.example.evil.example", 421),
    ],
)
def test_f29_the_advertised_host_and_allowed_hosts(own: BrokerProcess, host: str, status: int) -> None:
    assert ask(own, "GET", "/livez", {"Host": host}).status == status


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://localhost:{port}"},
        {"sec-fetch-site": "same-origin"},
        {"sec-fetch-site": "none"},
        {"origin": "http://localhost:{port}", "sec-fetch-site": "same-origin"},
    ],
)
def test_f29_our_own_page_works(broker: BrokerProcess, topic: str, headers: dict[str, str]) -> None:
    given = {name: value.format(port=broker.http_port) for name, value in headers.items()}
    assert ask(broker, "POST", f"/topics/{topic}/records", given, b"x").status == 201
    got = ask(broker, "GET", f"/topics/{topic}/records", given)
    assert got.status == 200
    assert got.headers["x-content-type-options"] == "nosniff"
    assert got.headers["cross-origin-resource-policy"] == "same-origin"


def test_f29_an_allowed_origin_is_answered_with_cors(own: BrokerProcess) -> None:
    for origin in ("https://shop.example", "http://localhost:3000"):
        page = {"origin": origin, "sec-fetch-site": "cross-site"}
        asked = {
            **page,
            "access-control-request-method": "POST",
            "access-control-request-headers": "content-type,x-headrace-client",
            "access-control-request-private-network": "true",
        }
        preflight = ask(own, "OPTIONS", "/topics/t/records", asked)
        assert preflight.status == 204
        assert preflight.headers["access-control-allow-origin"] == origin
        assert "POST" in preflight.headers["access-control-allow-methods"]
        assert preflight.headers["access-control-allow-headers"] == "content-type,x-headrace-client"
        assert preflight.headers["access-control-allow-private-network"] == "true"
        got = ask(own, "POST", "/topics/t/records", page, b"x")
        assert (got.status, got.headers["access-control-allow-origin"], got.headers["vary"]) == (
            201,
            origin,
            "origin",
        )
        tail = ask(own, "GET", "/topics/t/records", {**page, "accept": "text/event-stream"})
        assert (tail.status, tail.headers["access-control-allow-origin"]) == (200, origin)
    assert ask(own, "GET", "/livez", {"origin": "https://shop.example.evil.example"}).status == 403
    assert ask(own, "GET", "/livez", {"sec-fetch-site": "cross-site"}).status == 403, (
        "an <img> names no origin"
    )


@pytest.mark.parametrize(
    "setting", ["allowed_hosts=http://x", "allowed_origins=shop.example", "allowed_origins=*"]
)
def test_f29_a_setting_that_makes_no_sense_is_refused_at_start(
    fresh_broker: Callable[..., BrokerProcess], setting: str
) -> None:
    name, _, value = setting.partition("=")
    with pytest.raises(Exception, match=name):
        fresh_broker(environment={f"HEADRACE_{name.upper()}": value})


@pytest.mark.parametrize("kind", [FORM, "multipart/form-data; boundary=x", "text/plain", None])
def test_f29_what_a_form_can_send_changes_nothing(
    broker: BrokerProcess, queue: str, kind: str | None
) -> None:
    """W17: a browser too old for Origin and Sec-Fetch-Site is stopped by the type of its form."""
    given = {} if kind is None else {"content-type": kind}
    for path in (
        f"/api/v1/queues/{queue}/purge",
        "/api/v1/webhooks",
        "/api/v1/topics",
        f"/queues/{queue}/settle",
    ):
        got = ask(broker, "POST", path, given, b'{"x":1}')
        assert got.status == 415 and "application/json" in got.problem["hint"], path
        if kind is not None:
            assert ask(broker, "POST", path, given).status == 415, "not even without a body"
    assert untouched(broker, queue)


def test_f29_the_sqs_door_is_guarded_too(broker: BrokerProcess, queue: str) -> None:
    """A plain form speaks SQS's older protocol, and so does anything that can set x-amz-target."""
    purge = f"Action=PurgeQueue&QueueUrl=/000000000000/{queue}".encode()
    for page in ({"origin": EVIL}, {"sec-fetch-site": "cross-site"}, {"Host": "evil.example"}):
        assert ask(broker, "POST", "/", {"content-type": FORM, **page}, purge).status in (403, 421)
        target = {
            "x-amz-target": "AmazonSQS.PurgeQueue",
            "content-type": "application/x-amz-json-1.0",
            **page,
        }
        body = json.dumps({"QueueUrl": f"/000000000000/{queue}"}).encode()
        assert ask(broker, "POST", f"/000000000000/{queue}", target, body).status in (403, 421)
    assert untouched(broker, queue)


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
def test_f29_nothing_changes_by_get(broker: BrokerProcess, queue: str, method: str) -> None:
    """A6: what an <img> sends (here even without Sec-Fetch-Site, as to a name that is no loopback) takes no message."""
    for path in (f"/queues/{queue}/messages?max=10", f"/queues/{queue}/stream?ack=auto", f"/queues/{queue}/stream",
                 f"/queues/{queue}/receive", f"/api/v1/queues/{queue}/purge"):  # fmt: skip
        got = ask(broker, method, path, {"accept": "image/png,*/*"})
        assert got.status == (
            204 if method == "OPTIONS" else 405 if "/api" in path or "receive" in path else 403
        )
        assert untouched(broker, queue), path
    hint = ask(broker, "GET", f"/queues/{queue}/messages").problem["hint"]
    assert f"POST /queues/{queue}/receive" in hint and "x-headrace-client" in hint


def test_f29_no_get_of_the_whole_api_changes_anything(broker: BrokerProcess, queue: str) -> None:
    """Every GET that the document has, for things that are there and things that are not: no topic, no record, no lock."""
    paths = [
        path for path, item in ask(broker, "GET", "/openapi.json").problem["paths"].items() if "get" in item
    ]
    assert len(paths) > 20

    def everything() -> Any:
        topics = ask(broker, "GET", "/api/v1/topics?limit=1000&internal=true").problem["items"]
        return topics, untouched(broker, queue), ask(broker, "GET", "/api/v1/webhooks").body

    ask(broker, "GET", "/api/v1/groups/nobody")
    before = everything()
    for path in paths:
        for name in (queue, "nobody-has-made-this"):
            for method in ("GET", "HEAD"):
                filled = "/".join(name if part.startswith("{") else part for part in path.split("/"))
                assert ask(broker, method, filled).status < 500
    assert everything() == before


def test_f29_a_program_receives_by_post_or_by_get_with_a_name(broker: BrokerProcess, queue: str) -> None:
    got = ask(broker, "POST", f"/queues/{queue}/receive?visibility=0s")
    assert [item["value"] for item in got.problem["items"]] == ["precious"]
    got = ask(broker, "GET", f"/queues/{queue}/messages", {"x-headrace-client": "curl"})
    (item,) = got.problem["items"]
    assert ask(broker, "DELETE", f"/queues/{queue}/messages/{item['receipt']}").status == 204

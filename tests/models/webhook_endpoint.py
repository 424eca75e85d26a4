"""An HTTP endpoint for webhooks that behaves as a test tells it to, and the REST calls that make webhooks."""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
import time
from collections.abc import Callable
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from headrace.testing.broker_process import BrokerProcess

ALLOW = {
    "HEADRACE_WEBHOOK_ALLOW_HTTP": "true",
    "HEADRACE_WEBHOOK_NETWORKS": "127.0.0.0/8,::1",
    "HEADRACE_WEBHOOK_PORTS": "any",
}
QUICK = {"initial_ms": 50, "multiplier": 2, "max_ms": 400, "jitter": 0}
numbers = itertools.count()


class Got(NamedTuple):
    at: float
    headers: dict[str, str]
    body: bytes

    @property
    def value(self) -> str:
        value: str = json.loads(self.body)["data"]["value"]
        return value


class Reply(NamedTuple):
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    after_s: float = 0.0


Behaviour = Callable[[Got, int], Reply]


class Endpoint:
    """One path of the server. `behave` is asked for each message, with how many came before; confirmations are answered."""

    def __init__(self, server: Server, path: str) -> None:
        self.url = f"http://127.0.0.1:{server.port}{path}"
        self.behave: Behaviour = lambda got, number: Reply()
        self.confirms = True
        self.tokens: list[str] = []
        self.got: list[Got] = []
        self.taken: list[Got] = []
        self.running = self.most = 0
        self.lock = threading.Lock()
        self.end = threading.Event()

    def answer(self, method: str, headers: dict[str, str], body: bytes) -> Reply:
        if "headrace-confirmation" in headers:
            self.tokens.append(headers["headrace-confirmation"])
            return Reply(200, (), headers["headrace-confirmation"].encode() if self.confirms else b"what?")
        if method == "OPTIONS":
            return Reply(200, (("WebHook-Allowed-Origin", "*"), ("WebHook-Allowed-Rate", "60000")))
        got = Got(time.monotonic(), headers, body)
        with self.lock:
            self.got.append(got)
            number = len(self.got) - 1
            self.running += 1
            self.most = max(self.most, self.running)
        try:
            reply = self.behave(got, number)
            if reply.after_s:
                self.end.wait(reply.after_s)
            if 200 <= reply.status < 300:
                self.taken.append(got)
            return reply
        finally:
            with self.lock:
                self.running -= 1

    def values(self) -> list[str]:
        return [got.value for got in self.taken]


class Server:
    def __init__(self) -> None:
        endpoints: dict[str, Endpoint] = {}

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def serve(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                headers = {name.lower(): value for name, value in self.headers.items()}
                endpoint = endpoints.get(self.path)
                reply = endpoint.answer(self.command, headers, body) if endpoint else Reply(404)
                with contextlib.suppress(OSError):  # the broker may have given up on us
                    self.send_response(reply.status)
                    for name, value in reply.headers:
                        self.send_header(name, value)
                    self.send_header("content-length", str(len(reply.body)))
                    self.end_headers()
                    self.wfile.write(reply.body)

            do_POST = do_OPTIONS = do_GET = serve

            def log_message(self, *arguments: Any) -> None:
                pass

        self.endpoints = endpoints
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.port = self.http.server_port
        threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def endpoint(self) -> Endpoint:
        path = f"/hook{next(numbers)}"
        made = self.endpoints[path] = Endpoint(self, path)
        return made


class Api:
    """REST, as a person with curl."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker
        self.texts: list[str] = []

    def ask(self, method: str, path: str, body: Any = None, *, status: int | None = None) -> Any:
        connection = HTTPConnection("127.0.0.1", self.broker.http_port, timeout=120)
        data = None if body is None else json.dumps(body)
        connection.request(method, path, data, {"content-type": "application/json"} if data else {})
        response = connection.getresponse()
        content = response.read().decode()
        connection.close()
        self.texts.append(content)
        assert status is None or response.status == status, (response.status, content)
        assert status is not None or response.status < 400, (method, path, response.status, content)
        return json.loads(content) if content else None

    def send(self, queue: str, *values: Any, **extra: Any) -> None:
        for value in values:
            self.ask("POST", f"/queues/{queue}/messages", {"value": value, **extra})

    def knows(self, queue: str) -> bool:
        """Whether this broker has heard of the queue and of who leads it; it says 503 until then."""
        try:
            self.send(queue, f"from {self.broker.http_port}")
        except AssertionError:
            return False
        return True

    def add(self, queue: str, endpoint: Endpoint, *, create: bool = True, **options: Any) -> str:
        if create:
            settings = options.pop("settings", {})
            self.ask("POST", "/api/v1/queues", {"name": queue, **settings})
        added = self.ask(
            "POST",
            "/api/v1/webhooks",
            {"queue": queue, "url": endpoint.url, "retry": QUICK, **options},
            status=201,
        )
        return str(added["secret"])

    def webhook(self, name: str) -> Any:
        return self.ask("GET", f"/api/v1/webhooks/{name}")

    def queue(self, name: str) -> Any:
        return self.ask("GET", f"/api/v1/queues/{name}")

    def is_empty(self, name: str) -> bool:
        shown = self.queue(name)
        return bool(shown["ready"] + shown["in_flight"] + shown["delayed"] + shown["dying"] == 0)


def until(condition: Callable[[], bool], seconds: float = 240.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        threading.Event().wait(0.02)

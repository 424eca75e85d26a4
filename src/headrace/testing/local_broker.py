"""Public: a broker for somebody's own tests: inside the test's process, in memory, on free ports, gone at the end.

from headrace.testing import LocalBroker

with LocalBroker() as broker, broker.client() as client:      # or: async with
    client.publish("orders", {"id": 7}).result()
    broker.clock.advance(hours=12)

It is the broker that `headrace serve` runs, on a disk in memory, with a clock that the test moves and ways in that the test can disturb.
"""

from __future__ import annotations

import asyncio
import http.client
import json
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlencode

from headrace.testing.faults import Faults
from headrace.testing.local_nodes import LocalNodes
from headrace.testing.moving_clock import ClockHandle

if TYPE_CHECKING:
    from headrace.client.client import Client

Self = TypeVar("Self", bound="LocalCluster")

HOST = "127.0.0.1"
ANSWER_S = 60.0
CLUSTER_STRIDE_MS = 1_000
"""What brokers ask each other has limits on the same clock: none of them may pass before an answer has had its turn."""


class Refused(AssertionError):
    """The broker did not do what a helper asked of it; the text is its own."""


class LocalCluster:
    """`bootstrap` is the Kafka address, `url` the one for SQS and REST, `aws` what boto3 needs to know."""

    def __init__(self, brokers: int = 3, **settings: Any) -> None:
        """`settings` are those of `headrace serve`: `LocalCluster(3, num_partitions=6, retention_ms="1h")`."""
        if brokers > 1:
            settings = {"default_replication_factor": min(3, brokers), **settings}
        self._is_alone = brokers == 1
        self._nodes = LocalNodes(brokers, settings)

    # -- from start to stop ------------------------------------------------------------------------------------------

    def start(self: Self) -> Self:
        self._nodes.start()
        looks = [self._look_at(number) for number in self._nodes.nodes]
        self.faults = Faults(self._nodes.loop, list(self._nodes.files.values()), looks)
        return self

    def _look_at(self, number: int) -> Callable[[], None]:
        def look() -> None:
            if number in self._nodes.nodes:
                self._nodes.nodes[number].broker.replicas.room.look()

        return look

    def stop(self) -> None:
        self._nodes.stop()

    def __enter__(self: Self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self: Self) -> Self:
        return await asyncio.to_thread(self.start)

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.stop)

    # -- where it is ---------------------------------------------------------------------------------------------------

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{HOST}:{node.kafka_port}" for node in self._nodes.nodes.values())

    @property
    def urls(self) -> list[str]:
        return [f"http://{HOST}:{node.http_port}" for node in self._nodes.nodes.values()]

    @property
    def url(self) -> str:
        return self.urls[0]

    @property
    def aws(self) -> dict[str, str]:
        """`boto3.client("sqs", **broker.aws)`"""
        return {
            "endpoint_url": self.url,
            "region_name": "us-east-1",
            "aws_access_key_id": "test",
            "aws_secret_access_key": "test",
        }

    @property
    def clock(self) -> ClockHandle:
        return ClockHandle(self._nodes.loop, None if self._is_alone else CLUSTER_STRIDE_MS)

    def client(self, delivery: str = "at-least-once", **options: Any) -> Client:
        """A headrace.Client of this broker."""
        from headrace import Client

        return Client(self.bootstrap, delivery, **options)

    # -- what a test prepares and looks at -----------------------------------------------------------------------------

    def create_topic(self, name: str, partitions: int = 1, **configs: Any) -> str:
        """`configs` with underscores for Kafka's dots: `retention_ms=60_000`."""
        named = {key.replace("_", "."): str(value) for key, value in configs.items()}
        self.ask("POST", "/api/v1/topics", {"name": name, "partitions": partitions, "configs": named})
        return name

    def create_queue(self, name: str, **options: Any) -> str:
        """`options` as in REST: `visibility_ms=43_200_000, fifo=True, dead_letter="jobs-dead", max_deliveries=3`."""
        self.ask("POST", "/api/v1/queues", {"name": name, **options})
        return name

    def queue_url(self, name: str) -> str:
        """As SQS names it."""
        return f"{self.url}/000000000000/{name}"

    def records(self, topic: str) -> list[Any]:
        """The values in a topic, from its beginning: text as str, other bytes as {"base64": …}."""
        found: list[Any] = []
        query = {"offset": "start", "limit": "1000"}
        while True:
            page = self.ask("GET", f"/topics/{quote(topic, safe='')}/records", query=query)
            found += [item["value"] for item in page["items"]]
            if not page["items"]:
                return found
            query = {"cursor": page["next_cursor"], "limit": "1000"}

    def messages(self, queue: str, at_most: int = 1000) -> list[Any]:
        """The values that could be received from a queue now, looked at only."""
        page = self.ask(
            "GET", f"/queues/{quote(queue, safe='')}/messages", query={"peek": "", "max": str(at_most)}
        )
        return [item["value"] for item in page["items"]]

    def lag(self, group: str) -> int:
        """How many records a group has before it, over all it reads."""
        lag: int = self.ask("GET", f"/api/v1/groups/{quote(group, safe='')}")["lag"]
        return lag

    def ask(self, method: str, path: str, body: Any = None, *, query: dict[str, str] | None = None) -> Any:
        """A question in REST; Refused with the broker's words when it says no."""
        host, _, port = self.url.removeprefix("http://").partition(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=ANSWER_S)
        try:
            connection.request(
                method,
                path + (f"?{urlencode(query)}" if query else ""),
                None if body is None else json.dumps(body).encode(),
                {"Content-Type": "application/json", "X-Headrace-Client": "testing"},
            )
            response = connection.getresponse()
            content = response.read()
        finally:
            connection.close()
        if response.status >= 400:
            raise Refused(f"{method} {path}: {_words(content)}")
        return json.loads(content) if content else None

    # -- brokers of a cluster ------------------------------------------------------------------------------------------

    @property
    def brokers(self) -> list[int]:
        """The ids of those that run."""
        return list(self._nodes.nodes)

    def stop_broker(self, number: int) -> None:
        """In order: what it leads goes to others. For a crash there is BrokerProcess.kill."""
        self._nodes.run(self._nodes.stop_node(number))

    def start_broker(self, number: int) -> None:
        """Again, with the disk that it had."""
        self._nodes.run(self._nodes.start_node(number))


class LocalBroker(LocalCluster):
    """One broker."""

    def __init__(self, **settings: Any) -> None:
        """`settings` are those of `headrace serve`: `LocalBroker(num_partitions=6, sqs_strict=True)`."""
        super().__init__(1, **settings)

    @property
    def kafka_port(self) -> int:
        return self._nodes.nodes[1].kafka_port

    @property
    def http_port(self) -> int:
        return self._nodes.nodes[1].http_port


def _words(content: bytes) -> str:
    try:
        problem = json.loads(content)
        return f"{problem['detail']} ({problem['hint']})" if problem.get("hint") else str(problem["detail"])
    except (ValueError, KeyError, TypeError):
        return content.decode(errors="replace")

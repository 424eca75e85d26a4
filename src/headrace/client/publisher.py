"""Driver: publishing. librdkafka batches and retries; one thread serves its answers so that nobody has to poll."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import KafkaException, Producer

from headrace.client.errors import headrace_error
from headrace.client.message import Delivery
from headrace.client.payload import Headers, encode_headers, encode_key, encode_payload
from headrace.core.errors import ErrorKind, HeadraceError

POLL_SECONDS = 0.1
SERVE_EVERY = 200
"""Published messages after which the publisher itself hears the answers that are there. A thread of its own would have to take the
interpreter's lock for each of them while the publisher wants it, too: that cost more than the publishing."""
EXIT_SECONDS = 10.0
"""How long the end of the program waits for messages nobody flushed."""


class Publisher:
    def __init__(self, config: Mapping[str, Any]) -> None:
        self._producer = Producer(dict(config))
        self._produce: Callable[..., None] = self._producer.produce
        self._unserved = 0
        self._server = _Server(self._producer)
        # Runs at close, when we are collected, and at exit: what was published is not lost by forgetting to flush.
        self._end = weakref.finalize(self, _finish, self._producer, self._server)

    def trace(self, producing: Callable[[Callable[..., None]], Callable[..., None]]) -> None:
        """From now on each message is produced in a span."""
        self._produce = producing(self._produce)

    def publish(
        self,
        topic: str,
        payload: object,
        key: str | bytes | int | None,
        headers: Headers | None,
        partition: int | None,
        timestamp_ms: int | None,
    ) -> Delivery:
        delivery = Delivery(self._server)
        value = payload if type(payload) is bytes else encode_payload(payload)
        key_bytes = key if type(key) is bytes else encode_key(key)
        pairs = encode_headers(headers) if headers else None
        self._unserved += 1
        if self._unserved >= SERVE_EVERY:
            self._unserved = 0
            self._server.heard += 1
            self._producer.poll(0)
        while True:
            try:
                # By position: eight names to look up cost as much as the rest.
                self._produce(
                    topic,
                    value,
                    key_bytes,
                    -1 if partition is None else partition,
                    delivery.answered,
                    None,
                    timestamp_ms or 0,
                    pairs,
                )
                return delivery
            except BufferError:
                # The queue is full: the publisher waits for the broker, which is what back pressure is.
                self._producer.poll(POLL_SECONDS)
            except KafkaException as problem:
                raise headrace_error(problem.args[0]) from None

    def flush(self, timeout: float | None) -> None:
        """Until everything published so far is answered. Tells of failures that nobody has asked about."""
        left = self._producer.flush(-1 if timeout is None else timeout)
        if left:
            raise HeadraceError(ErrorKind.REQUEST_TIMED_OUT, f"{left} messages are not acknowledged yet")
        failed = self._server.take_failed()
        unseen = [delivery for delivery in failed if not delivery.observed]
        if unseen:
            first = unseen[0].exception()
            assert first is not None
            raise HeadraceError(
                first.kind, f"{len(unseen)} messages were not published: {first.detail}", first.hint
            )

    def close(self, timeout: float | None) -> None:
        try:
            self.flush(timeout)
        finally:
            self._end()


class _Server:
    """The thread that hears answers for those who wait for one, and now and then for everybody else's sake."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._asked = threading.Event()
        self._awaited: deque[Delivery] = deque()
        self._failed: list[Delivery] = []
        self._stop = False
        self.heard = 0
        """How often the publisher heard answers itself: while it does, a second one would only be in its way."""
        self._thread = threading.Thread(target=self._serve, name="headrace-publisher", daemon=True)
        self._thread.start()

    def expect(self, delivery: Delivery) -> None:
        self._awaited.append(delivery)
        self._asked.set()

    def failed(self, delivery: Delivery) -> None:
        self._failed.append(delivery)

    def take_failed(self) -> list[Delivery]:
        found = self._failed.copy()
        del self._failed[: len(found)]
        return found

    def _serve(self) -> None:
        heard = 0
        while not self._stop:
            self._asked.wait(POLL_SECONDS)
            self._asked.clear()
            if heard == self.heard:
                self._producer.poll(0)
            heard = self.heard
            while self._awaited and not self._stop:
                if self._awaited[0].done():
                    self._awaited.popleft()
                else:
                    self._producer.poll(POLL_SECONDS)

    def stop(self) -> None:
        self._stop = True
        self._asked.set()
        self._thread.join()


def _finish(producer: Producer, server: _Server) -> None:
    producer.flush(EXIT_SECONDS)
    server.stop()

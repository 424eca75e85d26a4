"""Driver: publishing. librdkafka batches and retries; one thread serves its answers so that nobody has to poll."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka import Message as KafkaMessage

from headrace.client.errors import headrace_error
from headrace.client.message import Delivery, Receipt
from headrace.client.payload import Headers, encode_headers, encode_key, encode_payload
from headrace.core.errors import ErrorKind, HeadraceError

POLL_SECONDS = 0.1
EXIT_SECONDS = 10.0
"""How long the end of the program waits for messages nobody flushed."""


class Publisher:
    def __init__(self, config: Mapping[str, Any]) -> None:
        self._producer = Producer(dict(config))
        self._failed: list[Delivery] = []
        stop = threading.Event()
        thread = threading.Thread(
            target=_serve_answers, args=(self._producer, stop), name="headrace-publisher", daemon=True
        )
        thread.start()
        # Runs at close, when we are collected, and at exit: what was published is not lost by forgetting to flush.
        self._end = weakref.finalize(self, _finish, self._producer, stop, thread)

    def publish(
        self,
        topic: str,
        payload: object,
        key: str | bytes | int | None,
        headers: Headers | None,
        partition: int | None,
        timestamp_ms: int | None,
    ) -> Delivery:
        delivery = Delivery()
        options: dict[str, Any] = {}
        if partition is not None:
            options["partition"] = partition
        if timestamp_ms is not None:
            options["timestamp"] = timestamp_ms
        if headers:
            options["headers"] = encode_headers(headers)
        value, key_bytes = encode_payload(payload), encode_key(key)

        def answered(error: KafkaError | None, message: KafkaMessage) -> None:
            if error is None:
                delivery.set_result(Receipt(message.partition() or 0, _offset(message)))
            else:
                self._failed.append(delivery)
                delivery.set_exception(headrace_error(error))

        while True:
            try:
                self._producer.produce(topic, value, key_bytes, on_delivery=answered, **options)
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
        failed, self._failed = self._failed, []
        unseen = [delivery for delivery in failed if not delivery.observed]
        if unseen:
            first = unseen[0].exception()
            assert isinstance(first, HeadraceError)
            raise HeadraceError(
                first.kind, f"{len(unseen)} messages were not published: {first.detail}", first.hint
            )

    def close(self, timeout: float | None) -> None:
        try:
            self.flush(timeout)
        finally:
            self._end()


def _offset(message: KafkaMessage) -> int:
    offset = message.offset()
    return -1 if offset is None else offset


def _serve_answers(producer: Producer, stop: threading.Event) -> None:
    while not stop.is_set():
        producer.poll(POLL_SECONDS)


def _finish(producer: Producer, stop: threading.Event, thread: threading.Thread) -> None:
    producer.flush(EXIT_SECONDS)
    stop.set()
    thread.join()

"""Driver: `headrace.Client`: publish, subscribe, and one knob for what a crash may do (K8).

with Client("localhost:9092") as client:
    receipt = client.publish("orders", {"id": 7}, key=7).result()
    for message in client.subscribe("orders", group="billing"):
        handle(message.json())
"""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Unpack

from headrace.client.login import login
from headrace.client.message import Delivery
from headrace.client.payload import Headers, encode_payload
from headrace.client.publisher import Publisher
from headrace.client.queue_address import http_address
from headrace.client.queue_client import QueueClient
from headrace.client.queue_records import SendOptions, queue_record, size_of
from headrace.client.reaching import LARGE_MESSAGES, need_broker
from headrace.client.semantics import CommitOrder, contract
from headrace.client.subscription import Ack, Subscription
from headrace.client.tracing import client_spans
from headrace.client.transaction import TransactionalPublisher
from headrace.client.worker import Worker
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.net.secret_files import read_secret
from headrace.records.positions import START, Anchor, Position, parse_position, since

LOG = logging.getLogger("headrace.client")
"""What librdkafka has to say. Quiet unless the program has set up logging."""
LOG.addHandler(logging.NullHandler())

REACH_SECONDS = 3.0
"""How long the first use waits for somebody to listen: a broker that is just being started has the time to."""

JOIN_SECONDS = 0.5
"""How often the main thread looks up while workers work: a signal is heard between two looks."""
_ENDS = (signal.SIGINT, signal.SIGTERM)

LONE_GROUP = "headrace-reader"
"""librdkafka wants a group id even from readers that never join one."""


class Client:
    """A connection to a broker. Threads may share it; `close` (or `with`) waits until everything is published."""

    def __init__(
        self,
        bootstrap: str = "localhost:9092",
        delivery: str = "at-least-once",
        *,
        timeout: float = 30.0,
        transactional_id: str | None = None,
        user: str = "",
        password_file: str = "",
        tls_ca: str = "",
        url: str = "",
        config: Mapping[str, Any] | None = None,
        tracing: Any = None,
    ) -> None:
        """`delivery` is at-most-once, at-least-once or exactly-once. `config` is passed on to librdkafka.

        `user` logs in (SCRAM) with the password in `password_file`, which nobody else may read; `tls_ca` is the certificate to trust, and
        speaks TLS. `url` is where queues are served, when the broker does not say that itself.

        Exactly-once: what is published while a group's messages are read belongs to them and is committed with their
        offsets; what is published otherwise becomes visible at `flush`, all of it or nothing. With a `transactional_id`
        of its own that it keeps over restarts, a worker that crashed holds nobody up: its successor ends its transaction.

        `tracing` makes spans of OpenTelemetry and passes their context on in headers (W3C): by default when the program has set a tracer
        provider by now; False never; True in any case, with an exporter of its own where OTEL_EXPORTER_OTLP_ENDPOINT names a collector and
        the program has no provider; a TracerProvider is used. Needs headrace[otel].
        """
        self._transactional_id = transactional_id
        self._contract = contract(delivery)
        self._timeout = timeout
        self._bootstrap = bootstrap
        self._reached = False
        self._config = {
            "bootstrap.servers": bootstrap,
            "client.id": "headrace-python",
            "logger": LOG,
            **login(user, password_file, tls_ca),
            **(config or {}),
        }
        self._url = url
        self._tls_ca = tls_ca
        self._login = (user, read_secret(password_file)) if user else None
        self._queues: dict[str, QueueClient] = {}
        self._sending = threading.Lock()
        self._workers: list[Worker] = []
        self._publisher: Publisher | None = None
        self._subscriptions: list[Subscription] = []
        self._spans = client_spans(tracing, bootstrap)

    # -- publishing --------------------------------------------------------------------------------------------

    def publish(
        self,
        topic: str,
        payload: object,
        *,
        key: str | bytes | int | None = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Delivery:
        """Send one message. Returns at once; the Delivery tells where it is once the broker has it."""
        publisher = self._publisher or self._publishing()
        return publisher.publish(topic, payload, key, headers, partition, timestamp_ms)

    def publish_many(
        self,
        topic: str,
        payloads: Iterable[object],
        *,
        key: str | bytes | int | None = None,
        headers: Headers | None = None,
    ) -> list[Delivery]:
        """Send all of them, in order."""
        publisher = self._publishing()
        return [publisher.publish(topic, payload, key, headers, None, None) for payload in payloads]

    def flush(self, timeout: float | None = None) -> None:
        """Until everything published so far is acknowledged; HeadraceError when something is not, or not in time."""
        if self._publisher is None:
            return
        self._publisher.flush(self._timeout if timeout is None else timeout)
        if isinstance(self._publisher, TransactionalPublisher) and self._reader is None:
            self._publisher.commit()

    @property
    def _reader(self) -> Subscription | None:
        """The subscription whose offsets go with what we publish."""
        return next((entry for entry in self._subscriptions if entry.in_transaction), None)

    def _publishing(self) -> Publisher:
        if self._publisher is None:
            self._reach()
            timeout_ms = int(self._timeout * 1000)
            settings = {
                "message.timeout.ms": timeout_ms,
                **LARGE_MESSAGES,
                **self._contract.producer,
                **self._config,
            }
            if self._contract.commit is CommitOrder.WITH_RESULTS:
                self._publisher = TransactionalPublisher(settings, self._timeout, self._transactional_id)
            else:
                self._publisher = Publisher(settings)
            if self._spans is not None:
                self._publisher.trace(self._spans.producing)
        return self._publisher

    def _reach(self) -> None:
        """Once, before anything is asked: librdkafka would go on trying for ever, and in silence."""
        if not self._reached:
            need_broker(self._bootstrap, min(self._timeout, REACH_SECONDS))
            self._reached = True

    # -- subscribing -------------------------------------------------------------------------------------------

    def subscribe(
        self,
        topics: str | Sequence[str],
        *,
        group: str | None = None,
        start: str | datetime = "start",
        ack: Ack = "auto",
        follow: bool = True,
        create: bool = False,
    ) -> Subscription:
        """Read topics, as a member of `group` or, without one, alone.

        They have to exist, so that a typing error is told and not waited for; with `create` they are made, where the
        broker allows that, and a worker may start before whoever publishes.

        `start` says where: start, end, -10, @15m, a datetime. A group goes on where it left off, and uses start or end
        only for what it has never read. `follow=False` ends the iteration when everything there is has been read.
        """
        names = [topics] if isinstance(topics, str) else list(topics)
        position = _since(start) if isinstance(start, datetime) else _position(start)
        if group is not None and position.anchor not in (Anchor.START, Anchor.END):
            raise HeadraceError(
                ErrorKind.INVALID_PARAMETER,
                f"a group goes on where it left off, so it can only begin at start or end, not at {start!r}",
                f"headrace group seek {group} --to …   moves a group",
            )
        self._reach()
        transaction = self._transaction_for(group)
        subscription = self._subscribed(
            {
                "group.id": group or LONE_GROUP,
                "allow.auto.create.topics": create,
                "auto.offset.reset": "earliest" if position == START else "latest",
                **self._contract.consumer,
                **({"enable.auto.commit": False} if group is None else {}),
                **self._config,
            },
            names,
            group=group,
            start=position,
            commit=self._contract.commit,
            ack=ack,
            follow=follow,
            transaction=transaction,
        )
        self._subscriptions.append(subscription)
        return subscription

    def _subscribed(self, config: Mapping[str, Any], topics: Sequence[str], **given: Any) -> Subscription:
        if self._spans is None:
            return Subscription(config, topics, **given)
        from headrace.client.spans import TracedSubscription

        return TracedSubscription(self._spans, config, topics, **given)

    def _transaction_for(self, group: str | None) -> TransactionalPublisher | None:
        if group is None or self._contract.commit is not CommitOrder.WITH_RESULTS:
            return None
        if self._reader is not None:
            raise HeadraceError(
                ErrorKind.INVALID_PARAMETER,
                "with exactly-once a client has one subscription of a group at a time, because it has one transaction",
                "use a Client for each",
            )
        publisher = self._publishing()
        assert isinstance(publisher, TransactionalPublisher)
        return publisher

    # -- queues ------------------------------------------------------------------------------------------------

    def send(self, queue: str, payload: object, **options: Unpack[SendOptions]) -> str:
        """One message for one worker of a queue, after `delay` seconds or `at` a time; `group` keeps the order of a FIFO queue. Returns its
        id once it is stored."""
        record = queue_record(payload, options)
        with self._sending:
            return self._send(queue, record)

    def send_many(self, queue: str, payloads: Iterable[object], **options: Unpack[SendOptions]) -> list[str]:
        """All of them in few requests, and their ids. When one is refused, those before it may have been stored. Traced, each has a request
        and a span of its own."""
        records = [queue_record(payload, options) for payload in payloads]
        with self._sending:
            if self._spans is not None:
                return [self._send(queue, record) for record in records]
            return self._link(queue).send_all(records)

    def schedule(
        self,
        name: str,
        cron: str,
        topic: str,
        payload: object,
        *,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> datetime:
        """Send this to a topic or a queue whenever the calendar says so (`0 7 * * mon-fri`), until `unschedule`. One of the same name is
        replaced. Returns when it is sent first."""
        value = encode_payload(payload) or b""
        try:
            wanted: dict[str, Any] = {"name": name, "cron": cron, "topic": topic, "value": value.decode()}
        except UnicodeDecodeError:
            problem = "what a schedule sends is text or JSON"
            raise HeadraceError(ErrorKind.INVALID_PARAMETER, problem) from None
        wanted |= {"key": key, "headers": dict(headers or {})}
        with self._sending:
            return datetime.fromtimestamp(self._link("").schedule(wanted) / 1000, UTC)

    def unschedule(self, name: str) -> None:
        """End a schedule. HeadraceError when there is none of that name."""
        with self._sending:
            self._link("").unschedule(name)

    def _link(self, queue: str) -> QueueClient:
        link = self._queues.get(queue)
        if link is None:
            link = self._queues[queue] = self._open_queue(queue)
        return link

    def _send(self, queue: str, record: dict[str, Any]) -> str:
        if self._spans is not None:
            return self._spans.send(self._link(queue), queue, record, size_of(record))
        return self._link(queue).send(record)

    def worker(
        self, queue: str, *, concurrency: int = 1, visibility: float = 30.0
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Call the function below for each message of the queue, `concurrency` of them at a time, once `run` is called.

        Its parameter's type says what it wants: bytes, str, a dataclass, a msgspec struct, a pydantic model, or a QueueMessage.
        """

        def add(work: Callable[..., Any]) -> Callable[..., Any]:
            self._workers.append(
                Worker(
                    lambda: self._open_queue(queue),
                    queue,
                    work,
                    concurrency=concurrency,
                    visibility_ms=round(visibility * 1000),
                    around=None if self._spans is None else self._spans.working,
                )
            )
            return work

        return add

    def run(self) -> None:
        """Work until `stop`, Ctrl-C or SIGTERM; what was begun is finished."""
        if not self._workers:
            raise HeadraceError(
                ErrorKind.INVALID_REQUEST, "there is no worker", '@client.worker("queue") above a function'
            )
        self._open_queue(self._workers[0].queue).close()  # nobody there: told now, not by the workers' logs
        before = {}
        if threading.current_thread() is threading.main_thread():
            before = {number: signal.signal(number, lambda *_: self.stop()) for number in _ENDS}
        try:
            for worker in self._workers:
                worker.start()
            for worker in self._workers:
                while not worker.join(JOIN_SECONDS):
                    pass
                if worker.problem is not None:
                    raise worker.problem
        finally:
            self.stop()
            for number, handler in before.items():
                signal.signal(number, handler)

    def stop(self) -> None:
        """End `run`, from any thread or signal."""
        for worker in self._workers:
            worker.stop()

    def _open_queue(self, queue: str) -> QueueClient:
        if not self._url:
            self._reach()
            self._url = http_address(self._config, self._timeout)
        return QueueClient(self._url, queue, login=self._login, tls_ca=self._tls_ca)

    # -- the end -----------------------------------------------------------------------------------------------

    def close(self) -> None:
        self.stop()
        for worker in self._workers:
            worker.join()
        for link in self._queues.values():
            link.close()
        self._queues.clear()
        for subscription in self._subscriptions:
            subscription.close()
        self._subscriptions.clear()
        try:
            if isinstance(self._publisher, TransactionalPublisher):
                self.flush()
        finally:
            self._drop()

    def _drop(self) -> None:
        publisher, self._publisher = self._publisher, None
        try:
            if publisher is not None:
                publisher.close(self._timeout)
        finally:
            if self._spans is not None:
                self._spans.close()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.__exit__, kind, value, trace)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """An exception rolls an open transaction back; otherwise it is committed."""
        if kind is not None and isinstance(self._publisher, TransactionalPublisher):
            for subscription in self._subscriptions:
                subscription.abandon()
            self._publisher.abort()
        self.close()


def _since(moment: datetime) -> Position:
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return since(round(aware.timestamp() * 1000))


def _position(text: str) -> Position:
    try:
        return parse_position(text, time.time_ns() // 1_000_000)
    except ValueError as problem:
        raise HeadraceError(ErrorKind.INVALID_PARAMETER, str(problem)) from None

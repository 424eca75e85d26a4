"""Driver: a worker of a queue: messages in, a function called, and the queue told what became of each.

    @client.worker("jobs", concurrency=4)
    def work(job: Job) -> None: ...

    client.run()

One thread receives no more than there are hands for, so nothing waits in a process that others could be doing. Another keeps what
is being worked on from being handed out again (half of the visibility before it is over). A function that returns acknowledges; one
that raises gives the message back, a little later each time, and the queue makes it a dead letter when its policy says so; `Reject`
does that at once. The message counts as done when the queue has heard so, never before.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, get_type_hints

from headrace.client.payload import decode_payload
from headrace.client.queue_client import QueueClient, Received
from headrace.core.errors import HeadraceError

LOG = logging.getLogger("headrace.client")
WAIT_MS = 5_000
"""How long a receive waits for messages: also how long a stop may take when there are none."""
FIRST_RETRY_MS = 1_000
LAST_RETRY_MS = 300_000
PAUSE_SECONDS = 1.0
"""After a broker could not be reached."""


class Reject(Exception):
    """Raised by a worker's function: this message will never work, whoever tries. It becomes a dead letter, with this as its reason."""


class QueueMessage:
    """What a worker's function gets when it asks for no other type."""

    __slots__ = ("_received",)

    def __init__(self, received: Received) -> None:
        self._received = received

    @property
    def id(self) -> str:
        return self._received.id

    @property
    def delivery(self) -> int:
        """How often it was handed out, this time included."""
        return self._received.delivery

    @property
    def value(self) -> bytes | None:
        return self._received.value

    @property
    def key(self) -> bytes | None:
        return self._received.key

    @property
    def headers(self) -> dict[str, bytes | None]:
        return dict(self._received.headers)

    @property
    def timestamp_ms(self) -> int:
        return self._received.timestamp

    @property
    def text(self) -> str:
        return (self._received.value or b"").decode()

    def json(self) -> Any:
        return decode_payload(self._received.value, object)

    def decode(self, kind: type[Any]) -> Any:
        """The value as a dataclass, a msgspec struct, a pydantic model. HeadraceError: it is something else."""
        return decode_payload(self._received.value, kind)

    def __repr__(self) -> str:
        return f"<QueueMessage {self.id} delivery={self.delivery}>"


class Worker:
    """Made by `Client.worker`; begins with `Client.run` or `start`."""

    def __init__(
        self,
        open_queue: Callable[[], QueueClient],
        queue: str,
        work: Callable[[Any], Any],
        *,
        concurrency: int,
        visibility_ms: int,
        around: Callable[[str, Callable[[Received], Any]], Callable[[Received], Any]] | None = None,
    ) -> None:
        """`around` makes of a queue's name and what is called for its messages what is called instead."""
        self.queue = queue
        self._open = open_queue
        self._visibility_ms = visibility_ms
        self._concurrency = concurrency
        call = _caller(work)
        self._call = call if around is None else around(queue, call)
        self._stop = threading.Event()
        self._under_way: dict[str, Received] = {}
        self._hands = threading.Condition()
        """Guards `_under_way`; told whenever a hand is free again."""
        self._settling = threading.local()
        self._threads: list[threading.Thread] = []
        self.done = 0
        self.failed = 0
        self.problem: Exception | None = None
        """Why it ended by itself."""

    # -- life --------------------------------------------------------------------------------------------------

    def start(self) -> None:
        if not self._threads:
            for target in (self._receive, self._keep):
                name = f"headrace-worker-{self.queue}-{target.__name__.strip('_')}"
                thread = threading.Thread(target=self._guarded, args=(target,), name=name, daemon=True)
                self._threads.append(thread)
                thread.start()

    def _guarded(self, target: Callable[[], None]) -> None:
        """Both of its threads or none: a worker that only looks alive would be worse than one that ends."""
        try:
            target()
        except Exception as problem:
            self.problem = problem
            self.stop()

    def stop(self) -> None:
        """Begin nothing more. What is being worked on is finished."""
        self._stop.set()

    def join(self, timeout: float | None = None) -> bool:
        """Whether everything has ended."""
        for thread in self._threads:
            thread.join(timeout)
        return not any(thread.is_alive() for thread in self._threads)

    # -- receiving ---------------------------------------------------------------------------------------------

    def _receive(self) -> None:
        link = self._open()
        with ThreadPoolExecutor(self._concurrency, thread_name_prefix=f"headrace-{self.queue}") as pool:
            while not self._stop.is_set():
                with self._hands:
                    self._hands.wait_for(
                        lambda: len(self._under_way) < self._concurrency or self._stop.is_set(), PAUSE_SECONDS
                    )
                    free = self._concurrency - len(self._under_way)
                if free > 0 and not self._stop.is_set():
                    found = self._ask(link, free)
                    if self._stop.is_set():
                        self._return(link, found)
                        break
                    for received in found:
                        with self._hands:
                            self._under_way[received.receipt] = received
                        pool.submit(self._work, received)
        link.close()

    def _ask(self, link: QueueClient, count: int) -> list[Received]:
        try:
            return link.receive(min(count, 10), self._visibility_ms, WAIT_MS)
        except HeadraceError as problem:
            LOG.warning('worker of queue "%s": %s', self.queue, problem)
            self._stop.wait(PAUSE_SECONDS)
            return []

    def _return(self, link: QueueClient, found: list[Received]) -> None:
        """They came while it was told to stop: somebody else may begin them at once."""
        try:
            if found:
                link.settle(give_back=[received.receipt for received in found], delay_ms=0)
        except HeadraceError as problem:
            LOG.warning('worker of queue "%s": %s', self.queue, problem)

    # -- working -----------------------------------------------------------------------------------------------

    def _work(self, received: Received) -> None:
        receipt = [received.receipt]
        try:
            try:
                self._call(received)
            except Reject as reason:
                self.failed += 1
                self._link().settle(reject=receipt, detail=str(reason) or "rejected")
            except Exception as problem:
                self.failed += 1
                LOG.warning('queue "%s", message %s: %r', self.queue, received.id, problem, exc_info=True)
                delay_ms = min(FIRST_RETRY_MS << min(received.delivery - 1, 20), LAST_RETRY_MS)
                self._link().settle(give_back=receipt, delay_ms=delay_ms, detail=repr(problem))
            else:
                if self._link().settle(ack=receipt):
                    LOG.warning(
                        'queue "%s", message %s: its time was over before it was done',
                        self.queue,
                        received.id,
                    )
                self.done += 1
        except HeadraceError as problem:
            # The queue did not hear what became of it: it is handed out again when its time is over.
            LOG.warning('queue "%s", message %s: %s', self.queue, received.id, problem)
        finally:
            with self._hands:
                self._under_way.pop(received.receipt, None)
                self._hands.notify_all()

    def _link(self) -> QueueClient:
        """One connection for each hand."""
        link: QueueClient | None = getattr(self._settling, "link", None)
        if link is None:
            link = self._settling.link = self._open()
        return link

    # -- keeping -----------------------------------------------------------------------------------------------

    def _keep(self) -> None:
        """Extend what is being worked on, until the last of it is done."""
        link = self._open()
        pause_s = self._visibility_ms / 3000
        while True:
            with self._hands:
                over = self._hands.wait_for(lambda: self._stop.is_set() and not self._under_way, pause_s)
                kept = list(self._under_way)
            if over:
                break
            if kept:
                try:
                    link.settle(extend=kept, visibility_ms=self._visibility_ms)
                except HeadraceError as problem:
                    LOG.warning('worker of queue "%s": %s', self.queue, problem)
        link.close()


def _caller(work: Callable[[Any], Any]) -> Callable[[Received], Any]:
    """The function with what it asks for: bytes, str, a QueueMessage, or the payload as the type it names."""
    parameters = list(inspect.signature(work).parameters.values())
    hint = get_type_hints(work).get(parameters[0].name) if parameters else None
    is_async = inspect.iscoroutinefunction(work)
    run: Callable[[Any], Any] = (lambda value: asyncio.run(work(value))) if is_async else work
    if hint is None or hint is QueueMessage:
        return lambda received: run(QueueMessage(received))
    if hint is bytes:
        return lambda received: run(received.value or b"")
    if hint is str:
        return lambda received: run((received.value or b"").decode())
    return lambda received: run(_decoded(received, hint))


def _decoded(received: Received, kind: type[Any]) -> Any:
    """A payload that is none of its type will be none at the next try either."""
    try:
        return decode_payload(received.value, kind)
    except HeadraceError as problem:
        raise Reject(problem.detail) from None

"""A courier with the real queue engine behind it and an endpoint that a test makes up, on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from types import SimpleNamespace
from typing import Any

import msgspec
from queue_desk import EPOCH_MS, SOURCE, Desk

from headrace.broker.queueing.routing.peer_calls import DeliveredMessage
from headrace.broker.queueing.specs import QueueSpec, with_config
from headrace.broker.supervision import Supervisor
from headrace.core.plan import Rejected
from headrace.push.courier import Courier, CourierBudget
from headrace.push.endpoint import Answer
from headrace.push.signature import SigningSecret
from headrace.push.spec import WebhookSpec
from headrace.queues.commands import Ack, Extend, Handle, LoggedMessage, Release, Source, WakeReceivers
from headrace.queues.config import QueueConfig
from headrace.records.build import Record
from headrace.testing.dice import Dice

Behaviour = Callable[[bytes], Awaitable[Answer]]


class World:
    """Stands in for the broker, its queues, the registry and the HTTP client of one courier."""

    def __init__(self, dice: Dice, config: QueueConfig, behave: Behaviour, **options: Any) -> None:
        self.engine = Desk(config)
        self.records: list[Record] = []
        self.spec = WebhookSpec(name="w", id="1", queue="q", url="http://x/", state="active", **options)
        self.queue = with_config(QueueSpec(name="q", id="2", topics=("t",)), config)
        self.received = 0
        """Calls."""
        self.held = 0
        """Bytes that are leased and neither acknowledged nor given back."""
        self.most_held = 0
        self.sent: list[list[str]] = []
        self.disabled = ""
        self.behave = behave
        self.refuse_extend = False
        self.secrets: tuple[SigningSecret, ...] = (SigningSecret(bytes(32)),)
        self._dice = dice
        self._tasks: set[asyncio.Task[Any]] = set()
        self._arrival = asyncio.Event()
        self.shards = SimpleNamespace(arrival=self._arrivals)
        self.local = self.layouts = self
        clock = SimpleNamespace(now_ms=self.now_ms, wall_ms=lambda: self.now_ms() + EPOCH_MS)
        supervise = Supervisor(clock, self._spawn).supervise
        runtime: Any = SimpleNamespace(
            clock=clock, spawn=self._spawn, supervise=supervise, random_bytes=self._random_bytes
        )
        self.budget = CourierBudget()
        registry: Any = SimpleNamespace(
            find=lambda name: self.spec, signing=lambda name: self.secrets, disable=self._disable
        )
        client: Any = SimpleNamespace(send=self._send)
        self.courier = Courier(runtime, 1, self, self, registry, client, self.budget, self.spec)  # type: ignore[arg-type]

    # --- runtime and registry -------------------------------------------------------------------------------------

    def now_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000)

    def _spawn(self, coro: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(coro, name=name)
        self._tasks.add(task)
        return task

    def _random_bytes(self, count: int) -> bytes:
        return bytes(self._dice.between(0, 255) for _ in range(count))

    async def _disable(self, spec: WebhookSpec, reason: str) -> None:
        self.disabled = reason
        self.spec = msgspec.structs.replace(self.spec, state="disabled")

    async def _send(self, url: str, headers: Mapping[str, str], body: bytes, timeout_s: float) -> Answer:
        document = msgspec.json.decode(body)["data"]
        self.sent.append([one["value"] for one in (document if isinstance(document, list) else [document])])
        return await self.behave(body)

    # --- its queues -------------------------------------------------------------------------------------------------

    def find(self, name: str) -> QueueSpec:
        return self.queue

    def of(self, spec: QueueSpec) -> Any:
        return SimpleNamespace(sources=[SOURCE], local=[(SOURCE, None)])

    def counts(self, spec: QueueSpec) -> list[tuple[Source, Any]]:
        self._catch_up()
        return [(SOURCE, self.engine.shard.counts(SOURCE))]

    def _arrivals(self, queue: str) -> asyncio.Event:
        if self._arrival.is_set():
            self._arrival = asyncio.Event()
        return self._arrival

    def _catch_up(self) -> None:
        self.engine.tick(max(self.engine.now_ms, self.now_ms()))
        if self.engine.take_effects(WakeReceivers):
            self._arrival.set()

    async def _commit(self) -> None:
        """A journal write takes a moment."""
        self._catch_up()
        await asyncio.sleep(self._dice.uniform(0.0001, 0.003))
        self._catch_up()

    async def receive(
        self, queue: QueueSpec, count: int, *, visibility_ms: int, owner: str
    ) -> list[DeliveredMessage]:
        self.received += 1
        self._catch_up()
        handles = self.engine.receive(count, visibility_ms=visibility_ms, owner=owner)
        await self._commit()
        found = [DeliveredMessage(SOURCE, self.records[h.offset], h, 0, f"id-{h.offset}") for h in handles]
        self.held += sum(len(one.record.value or b"") for one in found)
        self.most_held = max(self.most_held, self.held)
        return found

    async def ack(self, source: Source, handles: Iterable[Handle]) -> tuple[Rejected | None, ...]:
        return await self._settle(Ack(source, tuple(handles)))

    async def release(
        self, source: Source, handles: Iterable[Handle], delay_ms: int, detail: str = ""
    ) -> tuple[Rejected | None, ...]:
        return await self._settle(Release(source, tuple(handles), delay_ms, detail=detail))

    async def extend(self, source: Source, handles: Iterable[Handle], visibility_ms: int) -> tuple[Any, ...]:
        given = tuple(handles)
        if self.refuse_extend:
            return tuple("no" for _ in given)
        self._catch_up()
        answer: tuple[Any, ...] = self.engine.ask(Extend(source, given, visibility_ms))
        await self._commit()
        return answer

    async def _settle(self, command: Ack | Release) -> tuple[Rejected | None, ...]:
        self._catch_up()
        answer: tuple[Rejected | None, ...] = self.engine.ask(command)
        self.held -= sum(len(self.records[handle.offset].value or b"") for handle in command.handles)
        await self._commit()
        return answer

    # --- what a test says -----------------------------------------------------------------------------------------

    def publish(self, *values: str, group: bytes = b"", size: int = 0) -> None:
        messages = []
        for value in values:
            padded = value.encode() + b"." * max(0, size - len(value))
            self.records.append(Record(group or None, padded, (), EPOCH_MS, len(self.records)))
            messages.append(LoggedMessage(0, group=group))
        self.engine.send(*messages)
        self._catch_up()

    @property
    def done(self) -> int:
        return self.engine.shard.done_offset(SOURCE) or 0

    async def until(self, condition: Callable[[], bool], seconds: float = 600) -> None:
        """Ticks the engine meanwhile, as its driver's timer would."""
        async with asyncio.timeout(seconds):
            while not condition():
                await asyncio.sleep(0.01)
                self._catch_up()

    async def stop(self) -> None:
        self.courier.stop()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        failures = [task.exception() for task in self._tasks if not task.cancelled()]
        assert [failure for failure in failures if failure is not None] == []

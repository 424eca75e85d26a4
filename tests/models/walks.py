"""What one request costs in calls: a real broker in this process, one request after the other through its doors, and every call
of a Python function of ours in between, also those behind the answer. The calls of a walk are those of the quietest of several,
so that what the broker does now and then by itself does not count.

Waking a coroutine that waits inside of others is a call for each of them, as the profiler sees it, and as it costs.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import headrace
from headrace.broker.os_files import OsFileSystem
from headrace.broker.runtime import SystemRuntime
from headrace.core.ids import ZERO_UUID
from headrace.node.node import Node
from headrace.node.settings import Settings
from headrace.records.build import Record, build_batch
from headrace.wire.fetch import FetchPartition, FetchRequest, FetchTopic, encode_fetch_request
from headrace.wire.produce import ProducePartition, ProduceRequest, ProduceTopic, encode_produce_request

SOURCE = str(Path(headrace.__file__).parent) + "/"
SETTLE_S = 0.02
"""What a request leaves to be done after its answer is part of it."""
ROUNDS = 7
BACKGROUND = (
    "Controller.", "Couriers.", "CronSchedules.", "Housekeeping.", "HttpServer._sweep", "KafkaServer._sweep",
    "Membership.keep_alive", "Metadata.", "QueueUpkeep.", "Sampler.", "Signal.", "SqliteCoordinator.", "SqliteStore.",
)  # fmt: skip
"""What a broker does by itself now and then; whoever asks has no part in it."""
PRODUCE, FETCH = 0, 1


class Step(NamedTuple):
    depth: int
    module: str
    function: str


class Walk(NamedTuple):
    name: str
    steps: list[Step]

    @property
    def modules(self) -> int:
        return len({step.module for step in self.steps})

    @property
    def tree(self) -> str:
        return "\n".join(f"{'  ' * depth}{module} {function}" for depth, module, function in self.steps)


class Tracer:
    """Calls of our own functions, in order, each as deep as ours called each other."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self._depth = 0

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        if event not in ("call", "return") or not frame.f_code.co_filename.startswith(SOURCE):
            return
        if event == "call":
            module = frame.f_code.co_filename[len(SOURCE) :].removesuffix(".py")
            self.steps.append(Step(self._depth, module, frame.f_code.co_qualname))
            self._depth += 1
        else:
            self._depth = max(0, self._depth - 1)


async def trace(request: Awaitable[Any]) -> tuple[list[Step], Any]:
    tracer = Tracer()
    sys.setprofile(tracer)
    try:
        answer = await request
        await asyncio.sleep(SETTLE_S)
    finally:
        sys.setprofile(None)
    turns = [turn for turn in _turns(tracer.steps) if not any(map(_is_background, turn))]
    return [step for turn in _without_foreign_work(turns) for step in turn], answer


def _turns(steps: list[Step]) -> list[list[Step]]:
    """What the event loop called, each with all that it called."""
    turns: list[list[Step]] = []
    for step in steps:
        if step.depth == 0 or not turns:
            turns.append([])
        turns[-1].append(step)
    return turns


def _without_foreign_work(turns: list[list[Step]]) -> list[list[Step]]:
    """A thread that comes back looks the same whoever has sent it: as many count as were sent here."""
    sent = sum(step.function == "Threads.run" for turn in turns for step in turn)
    kept = []
    for turn in turns:
        if turn[0].function == "Threads._settle":
            sent -= 1
            if sent < 0:
                continue
        kept.append(turn)
    return kept


def _is_background(step: Step) -> bool:
    return step.function.startswith(BACKGROUND)


class Http:
    """One connection, with the headers that an SDK sends."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str) -> None:
        self._reader = reader
        self._writer = writer
        self._host = host

    async def _ask(self, method: str, path: str, headers: str, body: bytes) -> Any:
        self._writer.write(
            f"{method} {path} HTTP/1.1\r\nHost: {self._host}\r\nAccept-Encoding: identity\r\n"
            f"User-Agent: Boto3/1.35 md/Botocore#1.35 lang/python#3.11 cfg/retry-mode#legacy\r\n{headers}"
            f"Content-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        head = await self._reader.readuntil(b"\r\n\r\n")
        lines = dict(line.split(b": ", 1) for line in head.lower().split(b"\r\n")[1:-2])
        answer = await self._reader.readexactly(int(lines.get(b"content-length", b"0")))
        assert head.startswith(b"HTTP/1.1 2"), head + answer
        return json.loads(answer) if answer else {}

    async def sqs(self, action: str, **parameters: Any) -> Any:
        headers = (
            f"X-Amz-Target: AmazonSQS.{action}\r\nContent-Type: application/x-amz-json-1.0\r\n"
            "X-Amz-Date: 20260101T000000Z\r\namz-sdk-invocation-id: 8d6c\r\namz-sdk-request: attempt=1\r\n"
            "Authorization: AWS4-HMAC-SHA256 Credential=x/20260101/us-east-1/sqs/aws4_request, "
            "SignedHeaders=content-type;host;x-amz-date;x-amz-target, Signature=00\r\n"
        )
        return await self._ask("POST", "/", headers, json.dumps(parameters).encode())

    async def rest(self, method: str, path: str, body: object = None) -> Any:
        headers = "Content-Type: application/json\r\n"
        return await self._ask(method, path, headers, json.dumps(body).encode() if body else b"")

    def close(self) -> None:
        self._writer.close()


class Kafka:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def ask(self, key: int, version: int, body: bytes) -> bytes:
        flexible = b"\0" if key == PRODUCE else b""
        head = key.to_bytes(2, "big") + version.to_bytes(2, "big") + bytes(4) + b"\0\4walk" + flexible
        self._writer.write((len(head) + len(body)).to_bytes(4, "big") + head + body)
        size = int.from_bytes(await self._reader.readexactly(4), "big")
        return await self._reader.readexactly(size)

    def close(self) -> None:
        self._writer.close()


def _produce_body(acks: int) -> bytes:
    batch = build_batch([Record(b"k", b"v" * 100, (), 1)], wall_ms=1)
    part = ProducePartition(0, memoryview(batch))
    return b"".join(
        encode_produce_request(
            ProduceRequest(None, acks, 30_000, [ProduceTopic("log", ZERO_UUID, [part])]), 9
        )
    )


def _fetch_body() -> bytes:
    part = FetchPartition(0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(-1, -1, 500, 1, 1 << 20, 0, 0, -1, [FetchTopic("log", ZERO_UUID, [part])])
    return encode_fetch_request(request, 11)


@asynccontextmanager
async def a_broker() -> AsyncIterator[tuple[Http, Kafka]]:
    with tempfile.TemporaryDirectory(prefix="headrace-walk-") as directory:
        settings = Settings(kafka_port=0, http_port=0, data_dir=directory)
        node = Node(settings, SystemRuntime(OsFileSystem(directory)))
        await node.start()
        try:
            http = Http(
                *await asyncio.open_connection("127.0.0.1", node.http_port), f"127.0.0.1:{node.http_port}"
            )
            kafka = Kafka(*await asyncio.open_connection("127.0.0.1", node.kafka_port))
            try:
                yield http, kafka
            finally:
                http.close()
                kafka.close()
        finally:
            await node.stop()


class _Quietest:
    def __init__(self) -> None:
        self.walks: dict[str, list[Step]] = {}

    async def __call__(self, name: str, request: Awaitable[Any]) -> Any:
        steps, answer = await trace(request)
        known = self.walks.get(name)
        if known is None or len(steps) < len(known):
            self.walks[name] = steps
        return answer


async def take_walks(rounds: int = ROUNDS) -> list[Walk]:
    """Each kind of request in its quietest round. The first rounds warm up what is done once per queue and connection."""
    quietest = _Quietest()
    async with a_broker() as (http, kafka):
        await _sqs_walks(http, quietest, rounds)
        await _rest_walks(http, quietest, rounds)
        await http.rest("POST", "/api/v1/topics", {"name": "log"})
        once, durably, fetch = _produce_body(1), _produce_body(-1), _fetch_body()
        for _ in range(rounds):
            await quietest("produce acks=1", kafka.ask(PRODUCE, 9, once))
            await quietest("produce acks=all", kafka.ask(PRODUCE, 9, durably))
            await quietest("fetch", kafka.ask(FETCH, 11, fetch))
    return [Walk(name, steps) for name, steps in quietest.walks.items()]


async def _sqs_walks(http: Http, walk: _Quietest, rounds: int) -> None:
    url = (await http.sqs("CreateQueue", QueueName="walk"))["QueueUrl"]
    fifo = (await http.sqs("CreateQueue", QueueName="walk.fifo", Attributes={"FifoQueue": "true"}))[
        "QueueUrl"
    ]
    for number in range(rounds):
        body = "hello" * 10
        await walk("SQS SendMessage", http.sqs("SendMessage", QueueUrl=url, MessageBody=body))
        found = await walk("SQS ReceiveMessage", http.sqs("ReceiveMessage", QueueUrl=url))
        (receipt,) = [one["ReceiptHandle"] for one in found["Messages"]]
        await walk("SQS DeleteMessage", http.sqs("DeleteMessage", QueueUrl=url, ReceiptHandle=receipt))
        entries: list[Any] = [{"Id": str(one), "MessageBody": body} for one in range(10)]
        await walk("SQS SendMessageBatch of 10", http.sqs("SendMessageBatch", QueueUrl=url, Entries=entries))
        found = await walk(
            "SQS ReceiveMessage of 10",
            http.sqs("ReceiveMessage", QueueUrl=url, MaxNumberOfMessages=10),
        )
        done = [
            {"Id": str(at), "ReceiptHandle": one["ReceiptHandle"]} for at, one in enumerate(found["Messages"])
        ]
        assert len(done) == 10
        await walk("SQS DeleteMessageBatch of 10", http.sqs("DeleteMessageBatch", QueueUrl=url, Entries=done))
        letter = {
            "QueueUrl": fifo,
            "MessageBody": body,
            "MessageGroupId": "g",
            "MessageDeduplicationId": f"d{number}",
        }
        await walk("SQS SendMessage, FIFO", http.sqs("SendMessage", **letter))
        found = await walk("SQS ReceiveMessage, FIFO", http.sqs("ReceiveMessage", QueueUrl=fifo))
        (receipt,) = [one["ReceiptHandle"] for one in found["Messages"]]
        await walk("SQS DeleteMessage, FIFO", http.sqs("DeleteMessage", QueueUrl=fifo, ReceiptHandle=receipt))


async def _rest_walks(http: Http, walk: _Quietest, rounds: int) -> None:
    for _ in range(rounds):
        await walk("REST send", http.rest("POST", "/queues/walk/messages", {"value": "hello"}))
        found = await walk("REST receive", http.rest("POST", "/queues/walk/receive"))
        (receipt,) = [one["receipt"] for one in found["items"]]
        await walk("REST ack", http.rest("DELETE", f"/queues/walk/messages/{receipt}"))

"""kill -9 with messages in flight: nothing lost, no stale delete, nothing redelivered early, FIFO in order (R56-R59)."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from headrace.testing.broker_process import BrokerProcess
from headrace.testing.history import OperationOutcome
from headrace.testing.queue_checker import DequeuedMessage, QueueHistory, QueueOperation, check_queue

VISIBILITY_S = 2
KILLS = 4


def now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class Load:
    """Senders and workers on one queue; some messages are deleted, some are left to their lock."""

    def __init__(self, broker: BrokerProcess, *, is_fifo: bool) -> None:
        self._broker = broker
        self._is_fifo = is_fifo
        self.name = "load.fifo" if is_fifo else "load"
        self.history = QueueHistory()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._numbers = itertools.count()
        self._threads: list[threading.Thread] = []
        self.acked = 0

    def client(self) -> Any:
        return boto3.client(
            "sqs", endpoint_url=self._broker.url, region_name="us-east-1", aws_access_key_id="x",
            aws_secret_access_key="y",
            config=Config(retries={"max_attempts": 0}, connect_timeout=2, read_timeout=5),
        )  # fmt: skip

    def start(self) -> None:
        for target in (self._send, self._send, self._work, self._work, self._work):
            thread = threading.Thread(target=self._until_stopped, args=(target,))
            thread.start()
            self._threads.append(thread)

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _until_stopped(self, step: Callable[[Any, int], None]) -> None:
        client = self.client()
        for turn in itertools.count():
            if self._stop.is_set():
                return
            step(client, turn)

    def _end(
        self,
        operation: QueueOperation,
        outcome: OperationOutcome,
        deliveries: tuple[DequeuedMessage, ...] = (),
    ) -> None:
        with self._lock:
            self.history.end(operation, outcome, now_ms(), deliveries)

    def _try(self, operation: QueueOperation, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except ClientError as refusal:
            status = refusal.response["ResponseMetadata"]["HTTPStatusCode"]
            self._end(operation, OperationOutcome.FAIL if status < 500 else OperationOutcome.INFO)
        except BotoCoreError:
            pass  # the outcome is unknown
        threading.Event().wait(0.05)  # the broker is away, or not ready yet
        return None

    def _send(self, client: Any, turn: int) -> None:
        threading.Event().wait(0.01)  # so that the workers keep up
        with self._lock:
            number = next(self._numbers)
            body, group = f"m{number}", f"g{threading.get_ident() % 7}" if self._is_fifo else None
            operation = self.history.enqueue(self.name, body, now_ms(), group=group)
        options = {"MessageGroupId": group, "MessageDeduplicationId": body} if group else {}
        sent = self._try(
            operation, lambda: client.send_message(QueueUrl=self.name, MessageBody=body, **options)
        )
        if sent is not None:
            self.acked += 1
            self._end(operation, OperationOutcome.OK)

    def _work(self, client: Any, turn: int, *, delete_all: bool = False) -> int:
        with self._lock:
            operation = self.history.receive(self.name, VISIBILITY_S * 1000, now_ms())
        answer = self._try(
            operation,
            lambda: client.receive_message(
                QueueUrl=self.name,
                MaxNumberOfMessages=10 if delete_all else 5,
                WaitTimeSeconds=1,
                VisibilityTimeout=VISIBILITY_S,
            ),
        )
        if answer is None:
            return 0
        found = tuple(DequeuedMessage(m["Body"], m["ReceiptHandle"]) for m in answer.get("Messages", ()))
        self._end(operation, OperationOutcome.OK, found)
        for place, delivery in enumerate(found):
            if delete_all or (turn + place) % 3:
                self._delete(client, delivery)
        return len(found)

    def _delete(self, client: Any, delivery: DequeuedMessage) -> None:
        with self._lock:
            operation = self.history.delete(self.name, delivery, now_ms())
        deleted = self._try(
            operation, lambda: client.delete_message(QueueUrl=self.name, ReceiptHandle=delivery.receipt)
        )
        if deleted is not None:
            self._end(operation, OperationOutcome.OK)

    def drain(self) -> None:
        client = self.client()
        quiet_since = time.monotonic()
        while time.monotonic() - quiet_since < VISIBILITY_S + 1.5:
            if self._work(client, 1, delete_all=True):
                quiet_since = time.monotonic()


@pytest.mark.slow
@pytest.mark.parametrize("is_fifo", [False, True], ids=["standard", "fifo"])
def test_kills_with_messages_in_flight(fresh_broker: Callable[..., BrokerProcess], is_fifo: bool) -> None:
    broker = fresh_broker()
    load = Load(broker, is_fifo=is_fifo)
    load.client().create_queue(QueueName=load.name, Attributes={"FifoQueue": "true"} if is_fifo else {})
    load.start()
    try:
        for _ in range(KILLS):
            wanted = load.acked + 40
            deadline = time.monotonic() + 240
            while load.acked < wanted:
                assert time.monotonic() < deadline, "the load stands still"
                threading.Event().wait(0.01)
            broker.kill()
            broker.start()
    finally:
        load.stop()
    load.drain()
    report = check_queue(load.history.operations)
    assert report.is_valid, report.describe()
    assert load.acked >= KILLS * 40

"""Clients of a simulated queue: SQS over HTTP, as boto3 speaks it, to any broker; what they were told goes into a history.

A refusal (4xx) did not happen; anything else that is no success may have. Workers die with messages in their hands, keep
old receipts and use them later, hold messages longer and give them back, so that every rule has an occasion to be broken.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable
from typing import Any

from headrace.net.h1_client import H1Client, HttpFailure, Origin
from headrace.testing.dice import Dice
from headrace.testing.history import OperationOutcome
from headrace.testing.queue_checker import DequeuedMessage, QueueHistory, QueueOperation

HTTP_PORT = 9324
CALL_S = 8.0
RETRY_S = 0.1
_KEPT_RECEIPTS = 40


class Refused(Exception):
    """The server said no: it did not happen."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind = kind


class Unknown(Exception):
    """No usable answer: it may or may not have happened."""


class SqsClient:
    def __init__(self, hosts: list[str], dice: Dice) -> None:
        self._hosts = hosts
        self._dice = dice
        self._host = dice.pick(hosts)
        self._http = H1Client()

    @property
    def host(self) -> str:
        """Who is asked next."""
        return self._host

    async def ask(self, action: str, timeout_s: float = CALL_S, **parameters: Any) -> dict[str, Any]:
        headers = {"X-Amz-Target": f"AmazonSQS.{action}", "Content-Type": "application/x-amz-json-1.0"}
        try:
            got = await self._http.request(
                Origin(self._host, HTTP_PORT),
                "POST",
                "/",
                headers=headers,
                body=json.dumps(parameters).encode(),
                timeout_s=timeout_s,
            )
        except HttpFailure as problem:
            self._host = self._dice.pick(self._hosts)
            if not problem.sent:
                raise Refused("unreachable", str(problem)) from None
            raise Unknown from problem
        answer = json.loads(got.body) if got.body else {}
        if got.status == 200:
            return dict(answer)
        self._host = self._dice.pick(self._hosts)
        if got.status >= 500:
            raise Unknown(answer)
        raise Refused(answer.get("__type", ""), answer.get("message", ""))

    async def change_queue(self, queue: str, changes: dict[str, Any]) -> None:
        """What SQS has no words for, over REST, until it works."""
        while True:
            try:
                got = await self._http.request(
                    Origin(self._host, HTTP_PORT),
                    "PATCH",
                    f"/api/v1/queues/{queue}",
                    headers={"Content-Type": "application/json"},
                    body=json.dumps(changes).encode(),
                    timeout_s=CALL_S,
                )
                if got.status == 200:
                    return
            except HttpFailure:
                pass
            self._host = self._dice.pick(self._hosts)
            await asyncio.sleep(RETRY_S)

    async def rest(self, method: str, path: str, body: dict[str, Any] | None = None) -> None:
        """Over REST, until it works."""
        while True:
            try:
                got = await self._http.request(
                    Origin(self._host, HTTP_PORT),
                    method,
                    path,
                    headers={"Content-Type": "application/json"},
                    body=b"" if body is None else json.dumps(body).encode(),
                    timeout_s=CALL_S,
                )
                if got.status < 300:
                    return
            except HttpFailure:
                pass
            self._host = self._dice.pick(self._hosts)
            await asyncio.sleep(RETRY_S)

    async def insist(self, action: str, **parameters: Any) -> dict[str, Any]:
        """Until it works: for what may be asked twice."""
        while True:
            try:
                return await self.ask(action, **parameters)
            except (Refused, Unknown):
                await asyncio.sleep(RETRY_S)


class Station:
    """What senders and workers share: the queue, its history, and its clock."""

    def __init__(self, queue: str, history: QueueHistory) -> None:
        self.queue = queue
        self.history = history
        self.is_fifo = queue.endswith(".fifo")

    async def attempt(self, operation: QueueOperation, call: Any) -> dict[str, Any] | None:
        """The answer, or None. Without one the outcome is known (FAIL) or stays open."""
        try:
            answer: dict[str, Any] = await call
        except Refused:
            self.history.end(operation, OperationOutcome.FAIL, now_ms())
            return None
        except Unknown:
            return None
        return answer


class Sender:
    def __init__(self, station: Station, client: SqsClient, dice: Dice, name: str, *, delays: bool) -> None:
        self._station = station
        self._client = client
        self._dice = dice
        self._name = name
        self._delays = delays
        self._sent = 0
        self.acked = 0

    async def run(self, until: Callable[[], bool], pause_s: float, waves_s: float = 0.0) -> None:
        """With waves, a busy time and a quiet time of that length take turns."""
        while not until():
            if self._station.is_fifo and self._dice.chance(0.15):
                await self._send_batch()
            else:
                await self._send_one()
            await asyncio.sleep(self._dice.exponential(pause_s))
            if waves_s and int(now_ms() / 1000 / waves_s) % 2:
                await asyncio.sleep(self._dice.exponential(waves_s / 3))

    async def _send_one(self) -> None:
        station = self._station
        group = f"g{self._dice.between(0, 2)}" if station.is_fifo else None
        dedup_id = f"{self._name}.{self._sent}" if group else None
        for _ in range(3):
            # The retry of a send that nobody answered has the same deduplication id and a body of its own, so that the
            # checker can tell the two apart (R59).
            delay_s = self._dice.pick((0, 0, 1, 3)) if self._delays and not group else 0
            body = f"{self._name}.{self._sent}"
            self._sent += 1
            options: dict[str, Any] = {"DelaySeconds": delay_s} if delay_s else {}
            if group:
                options = {"MessageGroupId": group, "MessageDeduplicationId": dedup_id}
            operation = station.history.enqueue(
                station.queue, body, now_ms(), delay_ms=delay_s * 1000, group=group, dedup_id=dedup_id
            )
            call = self._client.ask("SendMessage", QueueUrl=station.queue, MessageBody=body, **options)
            if await station.attempt(operation, call) is not None:
                station.history.end(operation, OperationOutcome.OK, now_ms())
                self.acked += 1
                # Once in a while a client repeats what it was told has worked, as a retrying proxy does.
                if not group or not self._dice.chance(0.1):
                    return
            elif not group:
                return
            await asyncio.sleep(self._dice.pick((0.0, 0.1, 1.0, 5.0)))

    async def _send_batch(self) -> None:
        """Several of one group in one request: in their order. An entry that failed may have happened."""
        station = self._station
        group = f"g{self._dice.between(0, 2)}"
        bodies = [f"{self._name}.{self._sent + place}" for place in range(self._dice.between(2, 4))]
        self._sent += len(bodies)
        operations = {
            body: station.history.enqueue(
                station.queue, body, now_ms(), group=group, dedup_id=body, behind=bodies[place - 1] if place else None
            )
            for place, body in enumerate(bodies)
        }  # fmt: skip
        entries = [
            {"Id": str(place), "MessageBody": body, "MessageGroupId": group, "MessageDeduplicationId": body}
            for place, body in enumerate(bodies)
        ]
        try:
            answer = await self._client.ask("SendMessageBatch", QueueUrl=station.queue, Entries=entries)
        except Refused:
            for operation in operations.values():
                station.history.end(operation, OperationOutcome.FAIL, now_ms())
            return
        except Unknown:
            return
        for row in answer["Successful"]:
            station.history.end(operations[bodies[int(row["Id"])]], OperationOutcome.OK, now_ms())
            self.acked += 1


class Worker:
    def __init__(self, station: Station, client: SqsClient, dice: Dice) -> None:
        self._station = station
        self._client = client
        self._dice = dice
        self._receipts: deque[DequeuedMessage] = deque(maxlen=_KEPT_RECEIPTS)

    async def run(self, until: Callable[[], bool], pause_s: float) -> None:
        while not until():
            await self.take(visibility_s=self._dice.pick((1, 2, 2, 5)), wait_s=self._dice.pick((0, 0, 1, 3)))
            await asyncio.sleep(self._dice.exponential(pause_s))

    async def take(self, visibility_s: int, wait_s: int, *, delete_all: bool = False) -> int:
        station, dice = self._station, self._dice
        operation = station.history.receive(station.queue, visibility_s * 1000, now_ms())
        call = self._client.ask(
            "ReceiveMessage",
            QueueUrl=station.queue,
            MaxNumberOfMessages=10 if delete_all else dice.between(1, 5),
            VisibilityTimeout=visibility_s,
            WaitTimeSeconds=wait_s,
            MessageSystemAttributeNames=["ApproximateReceiveCount"],
        )
        answer = await station.attempt(operation, call)
        if answer is None:
            await asyncio.sleep(RETRY_S)
            return 0
        found = [
            DequeuedMessage(
                row["Body"], row["ReceiptHandle"], int(row["Attributes"]["ApproximateReceiveCount"])
            )
            for row in answer.get("Messages", ())
        ]
        station.history.end(operation, OperationOutcome.OK, now_ms(), found)
        for delivery in found:
            if delete_all:
                await self._delete(delivery)
            else:
                await self._work_on(delivery)
        return len(found)

    async def _work_on(self, delivery: DequeuedMessage) -> None:
        dice = self._dice
        fate = dice.uniform(0, 1)
        if fate < 0.55:
            await self._delete(delivery)
        elif fate < 0.65:
            await self._hold(delivery, dice.pick((2, 4, 8)))
        elif fate < 0.72:
            await self._hold(delivery, 0)
        else:
            self._receipts.append(delivery)  # it "dies" with the message, and may come back to it
        if self._receipts and dice.chance(0.15):
            await self._delete(self._receipts.popleft())

    async def _hold(self, delivery: DequeuedMessage, visibility_s: int) -> None:
        station = self._station
        operation = station.history.change_visibility(station.queue, delivery, visibility_s * 1000, now_ms())
        call = self._client.ask(
            "ChangeMessageVisibility",
            QueueUrl=station.queue,
            ReceiptHandle=delivery.receipt,
            VisibilityTimeout=visibility_s,
        )
        if await station.attempt(operation, call) is not None:
            station.history.end(operation, OperationOutcome.OK, now_ms())

    async def _delete(self, delivery: DequeuedMessage) -> None:
        station = self._station
        operation = station.history.delete(station.queue, delivery, now_ms())
        call = self._client.ask("DeleteMessage", QueueUrl=station.queue, ReceiptHandle=delivery.receipt)
        if await station.attempt(operation, call) is not None:
            station.history.end(operation, OperationOutcome.OK, now_ms())


def now_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1000)

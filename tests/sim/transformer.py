"""Consume, transform, produce: the offset that was read and what was made of it, in one transaction (R50, R53).

What is consumed is the row of natural numbers, and a group's offset says which comes next. Each transaction writes that number out and
moves the offset on by one. Exactly once means: in the end each number below the offset was written out by exactly one
committed transaction. An offset that is lost or thrown away makes a number come twice; one that moves without its
transaction leaves a number out; one that stays undecided for ever stops everything.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

from cluster_client import GIVE_UP_S, RETRY_S, ClusterClient, Gone, TransactionalProducer, Violation, _now

from headrace.core.errors import ErrorKind
from headrace.testing.dice import Dice
from headrace.testing.history import OperationHistory, Send
from headrace.wire.api import ApiKey
from headrace.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from headrace.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from headrace.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)


class Transformer(TransactionalProducer):
    def __init__(
        self,
        client: ClusterClient,
        history: OperationHistory,
        dice: Dice,
        number: int,
        partitions: int,
        topic: str,
    ) -> None:
        super().__init__(client, history, dice, number, partitions, topic)
        self._group = f"g{number}"
        self._known: tuple[int, ...] = (0,)
        """What the committed offset can be, as far as we were told."""

    async def run(self, until: Callable[[], bool], pause_s: float) -> None:
        while not until():
            try:
                # As a consumer that starts: first fence who was there before, then ask where to go on.
                await self._begin()
                number = await self._position(_now() + GIVE_UP_S)
                while not until():
                    number = await self._step(number)
                    await asyncio.sleep(self._dice.exponential(pause_s))
            except Gone:
                self._process += 1
                await asyncio.sleep(RETRY_S)

    async def _step(self, number: int) -> int:
        self._sent += 1
        sends = [Send(self._dice.between(0, self._partitions - 1), f"{self._id}.{number}.{self._sent}")]
        commit = not self._dice.chance(0.2)
        if commit:
            self._known = (number, number + 1)
        await self.transact(
            sends,
            commit=commit,
            deadline=_now() + GIVE_UP_S,
            besides=lambda deadline: self._send_offset(number + 1, deadline),
        )
        self._known = (number + 1,) if commit else (number,)
        return number + 1 if commit else await self._position(_now() + GIVE_UP_S)

    async def _send_offset(self, offset: int, deadline: float) -> None:
        added = AddOffsetsToTxnRequest(self._id, *self._producer, self._group)
        await self._ask(ApiKey.ADD_OFFSETS_TO_TXN, 1, added, lambda got: got.error_code, deadline)
        rows = [TxnOffsetCommitRequestPartition(0, offset, -1, "")]
        request = TxnOffsetCommitRequest(
            self._id, self._group, *self._producer, topics=[TxnOffsetCommitRequestTopic(self._topic, rows)]
        )
        _, error = await self._client.ask_coordinator(
            self._group, 0, ApiKey.TXN_OFFSET_COMMIT, 2, request,
            lambda got: got.topics[0].partitions[0].error_code, deadline,
        )  # fmt: skip
        if error is not ErrorKind.NONE:
            if error in (ErrorKind.INVALID_PRODUCER_EPOCH, ErrorKind.PRODUCER_FENCED):
                raise Gone
            raise Violation(f"{self._id}: TxnOffsetCommit was answered with {error.name}")

    async def _position(self, deadline: float) -> int:
        """Where to go on; waits while a transaction that moved it is undecided (R50)."""
        request = OffsetFetchRequest(self._group, [OffsetFetchRequestTopic(self._topic, [0])], [], True)
        answer, error = await self._client.ask_coordinator(
            self._group, 0, ApiKey.OFFSET_FETCH, 7, request, _fetch_error, deadline
        )
        if error is not ErrorKind.NONE:
            raise Violation(f"a question for offsets was answered with {error.name}")
        found = max(0, int(answer.topics[0].partitions[0].committed_offset))
        if found not in self._known:
            raise Violation(f"R53: the offset of {self._group} can be {self._known}, and {found} is there")
        self._known = (found,)
        return found

    async def check(self, values: list[str]) -> None:
        """At rest: `values` is everything that a read_committed consumer was given."""
        await self._begin()
        offset = await self._position(_now() + 2 * GIVE_UP_S)
        written = Counter(int(value.split(".")[1]) for value in values if value.startswith(f"{self._id}."))
        if written != Counter(range(offset)):
            wrong = (written - Counter(range(offset))) + (Counter(range(offset)) - written)
            raise Violation(f"exactly once: the offset is {offset}, and these are wrong: {dict(wrong)}")


def _fetch_error(answer: Any) -> int:
    return int(answer.error_code or answer.topics[0].partitions[0].error_code)

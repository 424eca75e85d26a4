"""Driver: publishing in transactions: what was published since the last commit becomes visible together, or never.

The offsets of what was read go into the same transaction (KIP-447), so reading, working and publishing count once or not
at all. A commit that the broker refuses (a rebalance took the partitions away, a timeout) is rolled back and told as
TransactionAborted: the work has to be done again, by whoever has the partitions then.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaException, TopicPartition

from headrace.client.errors import headrace_error
from headrace.client.message import Delivery
from headrace.client.payload import Headers
from headrace.client.publisher import Publisher
from headrace.core.errors import ErrorKind, HeadraceError


class TransactionAborted(HeadraceError):
    """Nothing of it happened."""

    def __init__(self, reason: str) -> None:
        super().__init__(ErrorKind.TRANSACTION_ABORTABLE, f"the transaction was rolled back: {reason}")


class TransactionalPublisher(Publisher):
    def __init__(self, config: Mapping[str, Any], timeout: float, name: str | None) -> None:
        """`name` is the transactional id. A successor of the same name ends what a crash left open at once. Without one,
        it ends by its timeout; who may commit offsets is told by the group's generation in either case."""
        own = {"transactional.id": name or f"headrace-{uuid.uuid4().hex}"}
        super().__init__({**own, "metadata.recovery.strategy": "none", **config})
        self._timeout = timeout
        self._started = False
        self._open = False

    def publish(
        self,
        topic: str,
        payload: object,
        key: str | bytes | int | None,
        headers: Headers | None,
        partition: int | None,
        timestamp_ms: int | None,
    ) -> Delivery:
        self._begin()
        return super().publish(topic, payload, key, headers, partition, timestamp_ms)

    def _begin(self) -> None:
        if not self._started:
            self._call(lambda: self._producer.init_transactions(self._timeout))
            self._started = True
        if not self._open:
            self._call(self._producer.begin_transaction)
            self._open = True

    def commit(self, offsets: Sequence[TopicPartition] = (), group: Any = None) -> None:
        """Everything since the last commit, with these offsets of the consumer whose group metadata is `group`."""
        if offsets:
            self._begin()
        if not self._open:
            return
        try:
            if offsets:
                self._call(
                    lambda: self._producer.send_offsets_to_transaction(list(offsets), group, self._timeout)
                )
            self._call(lambda: self._producer.commit_transaction(self._timeout))
        except TransactionAborted:
            self.abort()
            raise
        self._open = False
        self._server.take_failed()

    def abort(self) -> None:
        if self._open:
            self._open = False
            self._call(lambda: self._producer.abort_transaction(self._timeout))
            self._server.take_failed()

    def close(self, timeout: float | None) -> None:
        """What was published and not committed is rolled back."""
        try:
            self.abort()
        finally:
            self._end()

    def _call(self, work: Callable[[], Any]) -> None:
        """Retry what may be retried, for as long as it may take; tell what must be rolled back from what is over."""
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                work()
                return
            except KafkaException as problem:
                error = problem.args[0]
                if error.txn_requires_abort():
                    raise TransactionAborted(error.str()) from None
                if not error.retriable() or time.monotonic() >= deadline:
                    raise headrace_error(error) from None

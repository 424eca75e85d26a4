"""What a peer answers may make no sense to us: an error only a newer broker knows, or no answer of this protocol (F17).

Then nobody knows what it did, and it is asked again. Nobody waits for ever.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from cluster_client import TransactionalProducer
from cluster_sim import TOPIC, Shape, SimCluster
from test_elections import begun
from test_lease import soon

from headrace.broker import peer
from headrace.kafka.handlers import k27_write_txn_markers
from headrace.testing.history import OperationHistory, Send
from headrace.wire.api import API, ApiKey
from headrace.wire.messages.write_txn_markers import WritableTxnMarkerPartitionResult
from headrace.wire.primitives import ProtocolError

BRAND_NEW = 32_000
"""No error that we know."""
TIMES = 3


def a_new_error(monkeypatch: pytest.MonkeyPatch, left: list[int]) -> None:
    answered = k27_write_txn_markers._answered

    async def strangely(*arguments: Any) -> Any:
        result = await answered(*arguments)
        if left:
            left.pop()
            for topic in result.topics:
                topic.partitions = [
                    WritableTxnMarkerPartitionResult(row.partition_index, BRAND_NEW)
                    for row in topic.partitions
                ]
        return result

    monkeypatch.setattr(k27_write_txn_markers, "_answered", strangely)


def nonsense(monkeypatch: pytest.MonkeyPatch, left: list[int]) -> None:
    decode = peer.decode

    def strangely(kind: Any, *arguments: Any) -> Any:
        if left and kind is API[ApiKey.WRITE_TXN_MARKERS].response:
            left.pop()
            raise ProtocolError("more entries than there are bytes")
        return decode(kind, *arguments)

    monkeypatch.setattr(peer, "decode", strangely)


@pytest.mark.parametrize("strange", [a_new_error, nonsense])
def test_f17_a_transaction_ends_although_markers_were_answered_strangely(
    strange: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = SimCluster(9, Shape(partitions=3, hostile=False))
    left = list(range(TIMES))

    async def story(_: Any) -> None:
        client = await begun(cluster, 3)
        producer = TransactionalProducer(client, OperationHistory(), cluster.dice, 1, 3, TOPIC)
        await producer._begin()
        strange(monkeypatch, left)
        for number in range(10):
            sends = [Send(partition, f"{number}.{partition}") for partition in range(3)]
            await producer.transact(sends, commit=True, deadline=soon())

    cluster.simulation.run(story)
    assert not left, "each was answered, and asked again"

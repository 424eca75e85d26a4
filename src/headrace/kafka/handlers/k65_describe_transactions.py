"""Door: DescribeTransactions (65)."""

from __future__ import annotations

from headrace.core.errors import HeadraceError
from headrace.kafka.call import Call
from headrace.security.guard import Parts
from headrace.security.rights import TRANSACTIONAL_ID, describe, needs
from headrace.transactions import commands
from headrace.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)

KEY = 65
VERSIONS = (0, 0)
RIGHTS = needs(describe(TRANSACTIONAL_ID, "transactional_ids[]"))
PARTS = (Parts("transactional_ids", "transaction_states"),)


async def handle(call: Call[DescribeTransactionsRequest]) -> DescribeTransactionsResponse:
    request = call.request
    wanted = dict.fromkeys(request.transactional_ids)
    return DescribeTransactionsResponse(
        transaction_states=[await _describe(call, entry) async for entry in call.pace().over(wanted)]
    )


async def _describe(call: Call[DescribeTransactionsRequest], transactional_id: str) -> TransactionState:
    try:
        (found,) = await call.services.transactions.ask(
            transactional_id, commands.DescribeTransactions((transactional_id,))
        )
    except HeadraceError as problem:
        return TransactionState(error_code=problem.kind.kafka_code, transactional_id=transactional_id)
    topics: dict[str, list[int]] = {}
    for tp in found.partitions:
        topics.setdefault(tp.topic, []).append(tp.partition)
    return TransactionState(
        found.error.kafka_code,
        transactional_id,
        found.state,
        found.timeout_ms,
        found.start_wall_ms,
        found.producer_id,
        found.producer_epoch,
        [TopicData(name, numbers) for name, numbers in topics.items()],
    )

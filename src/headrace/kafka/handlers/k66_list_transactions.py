"""Door: ListTransactions (66): what this broker coordinates. v1: only those open for longer than a given time."""

from __future__ import annotations

from headrace.core.errors import HeadraceError
from headrace.kafka.call import Call
from headrace.security.rights import OWN, TRANSACTIONAL_ID, describe
from headrace.transactions import commands
from headrace.wire.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)

KEY = 66
VERSIONS = (0, 1)
RIGHTS = OWN.showing(describe(TRANSACTIONAL_ID))


async def handle(call: Call[ListTransactionsRequest]) -> ListTransactionsResponse:
    request = call.request
    try:
        answers: list[commands.ListResult] = await call.services.transactions.ask_all(
            commands.ListTransactions(
                frozenset(request.state_filters),
                frozenset(request.producer_id_filters),
                request.duration_filter,
            )
        )
    except HeadraceError as problem:
        return ListTransactionsResponse(error_code=problem.kind.kafka_code)
    pace = call.pace()
    unknown = sorted({state for answer in answers for state in answer.unknown_states})
    return ListTransactionsResponse(
        unknown_state_filters=unknown,
        transaction_states=[
            TransactionState(entry.transactional_id, entry.producer_id, entry.state)
            for answer in answers
            async for entry in pace.over(answer.transactions)
            if call.sees(TRANSACTIONAL_ID, entry.transactional_id)
        ],
    )

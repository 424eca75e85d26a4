"""Door: ListTransactions (66): what this broker coordinates. v1: only those open for longer than a given time.

v2: only those whose whole id an expression matches (KIP-1152), in time linear in the id as RE2 does it.
"""

from __future__ import annotations

from headrace.core.errors import ErrorKind, HeadraceError
from headrace.groups.topic_regex import InvalidPattern, NamePattern
from headrace.kafka.call import Call
from headrace.security.rights import OWN, TRANSACTIONAL_ID, describe
from headrace.transactions import commands
from headrace.wire.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)

KEY = 66
VERSIONS = (0, 2)
RIGHTS = OWN.showing(describe(TRANSACTIONAL_ID))


async def handle(call: Call[ListTransactionsRequest]) -> ListTransactionsResponse:
    request = call.request
    try:
        pattern = _pattern(request.transactional_id_pattern)
    except InvalidPattern:
        return ListTransactionsResponse(error_code=ErrorKind.INVALID_REGULAR_EXPRESSION.kafka_code)
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
    listed = [entry for answer in answers async for entry in pace.over(answer.transactions)]
    try:
        ids = frozenset(entry.transactional_id for entry in listed)
        wanted = ids if pattern is None else pattern.select(ids)
    except InvalidPattern:  # too dear
        return ListTransactionsResponse(error_code=ErrorKind.INVALID_REGULAR_EXPRESSION.kafka_code)
    unknown = sorted({state for answer in answers for state in answer.unknown_states})
    return ListTransactionsResponse(
        unknown_state_filters=unknown,
        transaction_states=[
            TransactionState(entry.transactional_id, entry.producer_id, entry.state)
            async for entry in pace.over(listed)
            if entry.transactional_id in wanted and call.sees(TRANSACTIONAL_ID, entry.transactional_id)
        ],
    )


def _pattern(expression: str | None) -> NamePattern | None:
    """Raises InvalidPattern."""
    if not expression:
        return None
    if not expression.isascii():
        raise InvalidPattern("only ASCII is understood")
    return NamePattern(expression)

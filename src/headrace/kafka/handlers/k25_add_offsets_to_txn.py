"""Door: AddOffsetsToTxn (25): the group's partition of __consumer_offsets joins the transaction."""

from __future__ import annotations

from headrace.core.errors import HeadraceError
from headrace.kafka.call import Call
from headrace.security.rights import GROUP, TRANSACTIONAL_ID, needs, read, write
from headrace.transactions.commands import AddOffsets
from headrace.transactions.versions import error_for_version
from headrace.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

KEY = 25
VERSIONS = (0, 4)
RIGHTS = needs(write(TRANSACTIONAL_ID, "transactional_id"), read(GROUP, "group_id"))


async def handle(call: Call[AddOffsetsToTxnRequest]) -> AddOffsetsToTxnResponse:
    request = call.request
    try:
        error = await call.services.transactions.ask(
            request.transactional_id,
            AddOffsets(
                request.transactional_id,
                request.producer_id,
                request.producer_epoch,
                request.group_id,
                call.connection_id,
            ),
        )
    except HeadraceError as problem:
        error = problem.kind
    return AddOffsetsToTxnResponse(error_code=error_for_version(KEY, call.version, error).kafka_code)

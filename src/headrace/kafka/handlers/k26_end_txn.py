"""Door: EndTxn (26): commit or abort. Answered when the decision is durable; the markers follow. v5: epoch bump (R46)."""

from __future__ import annotations

from headrace.core.errors import HeadraceError
from headrace.kafka.call import Call
from headrace.security.rights import TRANSACTIONAL_ID, needs, write
from headrace.transactions.commands import EndTxn, ProducerIdentity
from headrace.transactions.state import NO_PRODUCER_ID, is_exhausted
from headrace.transactions.versions import EPOCH_BUMP_SINCE_END_TXN, error_for_version
from headrace.wire.messages.end_txn import EndTxnRequest, EndTxnResponse

KEY = 26
VERSIONS = (0, 5)
RIGHTS = needs(write(TRANSACTIONAL_ID, "transactional_id"))


async def handle(call: Call[EndTxnRequest]) -> EndTxnResponse:
    request = call.request
    bumps = call.version >= EPOCH_BUMP_SINCE_END_TXN
    try:
        spare = NO_PRODUCER_ID
        if bumps and is_exhausted(request.producer_epoch):
            spare = await call.services.producer_ids.take()
        identity: ProducerIdentity = await call.services.transactions.ask(
            request.transactional_id,
            EndTxn(
                request.transactional_id,
                request.producer_id,
                request.producer_epoch,
                request.committed,
                bumps,
                spare,
                None if bumps else call.connection_id,
            ),
        )
    except HeadraceError as problem:
        return EndTxnResponse(error_code=error_for_version(KEY, call.version, problem.kind).kafka_code)
    return EndTxnResponse(
        error_code=error_for_version(KEY, call.version, identity.error).kafka_code,
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch,
    )

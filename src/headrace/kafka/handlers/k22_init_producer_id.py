"""Door: InitProducerId (22). Without a transactional id any broker hands out a fresh id (idempotent producers).

With one, the id's coordinator gives the producer its epoch and fences the one before it. v3: a producer that recovers
says who it was (KIP-360). v4: PRODUCER_FENCED. Not served: v6 (two-phase commit).
"""

from __future__ import annotations

from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.limits import MAX_NAME_BYTES
from headrace.kafka.call import Call
from headrace.security.rights import TRANSACTIONAL_ID, idempotent_write, needs, write
from headrace.transactions.commands import InitProducerId, ProducerIdentity
from headrace.transactions.versions import error_for_version
from headrace.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

KEY = 22
VERSIONS = (0, 5)
RIGHTS = needs(write(TRANSACTIONAL_ID, "transactional_id"), idempotent_write().when("transactional_id", None))


async def handle(call: Call[InitProducerIdRequest]) -> InitProducerIdResponse:
    request = call.request
    try:
        producer_id = await call.services.producer_ids.take()
        if request.transactional_id is None:
            return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
        identity = await _transactional(call, request, request.transactional_id, producer_id)
    except HeadraceError as problem:
        return InitProducerIdResponse(error_code=problem.kind.kafka_code)
    error = error_for_version(KEY, call.version, identity.error)
    return InitProducerIdResponse(
        error_code=error.kafka_code, producer_id=identity.producer_id, producer_epoch=identity.producer_epoch
    )


async def _transactional(
    call: Call[InitProducerIdRequest], request: InitProducerIdRequest, transactional_id: str, producer_id: int
) -> ProducerIdentity:
    if not transactional_id:
        raise HeadraceError(ErrorKind.INVALID_REQUEST, "the transactional id is empty")
    if len(transactional_id.encode()) > MAX_NAME_BYTES:
        raise HeadraceError(
            ErrorKind.INVALID_REQUEST, f"a transactional id has at most {MAX_NAME_BYTES} bytes"
        )
    identity: ProducerIdentity = await call.services.transactions.ask(
        transactional_id,
        InitProducerId(
            transactional_id,
            request.transaction_timeout_ms,
            producer_id,
            request.producer_id,
            request.producer_epoch,
            call.connection_id,
        ),
    )
    return identity

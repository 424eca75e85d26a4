"""Door: InitProducerId (22). Without a transactional id any broker hands out a fresh id (idempotent producers)."""

from __future__ import annotations

from headrace.core.errors import ErrorKind, HeadraceError
from headrace.kafka.call import Call
from headrace.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

KEY = 22
VERSIONS = (0, 5)


async def handle(call: Call) -> InitProducerIdResponse:
    request: InitProducerIdRequest = call.request
    if request.transactional_id is not None:
        return InitProducerIdResponse(error_code=ErrorKind.COORDINATOR_NOT_AVAILABLE)
    try:
        producer_id = await call.broker.producer_ids.take()
    except HeadraceError as problem:
        return InitProducerIdResponse(error_code=problem.kind.kafka_code)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)

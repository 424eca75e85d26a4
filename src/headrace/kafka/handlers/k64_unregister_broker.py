"""Door: UnregisterBroker (64): forget a broker that is gone for good. Refused while it lives or has replicas."""

from __future__ import annotations

from headrace.core.errors import HeadraceError
from headrace.kafka.call import Call
from headrace.security.rights import CLUSTER, alter, needs
from headrace.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

KEY = 64
VERSIONS = (0, 0)
RIGHTS = needs(alter(CLUSTER))


async def handle(call: Call[UnregisterBrokerRequest]) -> UnregisterBrokerResponse:
    request = call.request
    try:
        await call.services.partition_admin.forget_broker(request.broker_id)
    except HeadraceError as problem:
        return UnregisterBrokerResponse(error_code=problem.kind.kafka_code, error_message=problem.detail)
    return UnregisterBrokerResponse()

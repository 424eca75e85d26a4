"""Door: AlterClientQuotas (49): byte rates and request time by user and client id (KIP-546).

Not offered: quotas by ip and rates of controller mutations; asking for them is an error, not silence.
"""

from __future__ import annotations

from headrace.cluster.quotas import entity_of, value_problem
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.kafka.call import Call
from headrace.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntryData,
    EntryData,
)

KEY = 49
VERSIONS = (0, 1)


async def handle(call: Call) -> AlterClientQuotasResponse:
    request: AlterClientQuotasRequest = call.request
    rows = []
    async for entry in call.pace().over(request.entries):
        try:
            await _alter(call, entry, request.validate_only)
            rows.append(AlterClientQuotasResponseEntryData(0, None, entry.entity))
        except HeadraceError as problem:
            code = problem.kind.kafka_code
            rows.append(AlterClientQuotasResponseEntryData(code, problem.detail, entry.entity))
    return AlterClientQuotasResponse(0, rows)


async def _alter(call: Call, entry: EntryData, validate_only: bool) -> None:
    entity = entity_of((part.entity_type, part.entity_name) for part in entry.entity)
    if isinstance(entity, str):
        raise HeadraceError(ErrorKind.INVALID_REQUEST, entity)
    changes: dict[str, float | None] = {}
    for op in entry.ops:
        if op.key in changes:
            raise HeadraceError(ErrorKind.INVALID_REQUEST, f"{op.key} is changed twice")
        problem = value_problem(op.key, 1.0 if op.remove else op.value)
        if problem is not None:
            raise HeadraceError(ErrorKind.INVALID_REQUEST, problem)
        changes[op.key] = None if op.remove else op.value
    if not validate_only:
        await call.broker.quota_admin.alter(entity, changes)

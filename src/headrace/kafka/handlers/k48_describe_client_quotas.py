"""Door: DescribeClientQuotas (48): the quotas that are set. Never a null list: Java clients fall over it (trap 2)."""

from __future__ import annotations

from headrace.cluster.quotas import ENTITY_TYPES, Entity
from headrace.core.errors import ErrorKind
from headrace.kafka.call import Call
from headrace.security.rights import CLUSTER, describe_configs, needs
from headrace.wire.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

KEY = 48
VERSIONS = (0, 1)
RIGHTS = needs(describe_configs(CLUSTER))

EXACT, DEFAULT, ANY = 0, 1, 2


async def handle(call: Call[DescribeClientQuotasRequest]) -> DescribeClientQuotasResponse:
    request = call.request
    problem = _problem(request.components)
    if problem is not None:
        return DescribeClientQuotasResponse(0, ErrorKind.INVALID_REQUEST.kafka_code, problem, [])
    entries = [
        EntryData(
            [EntityData(kind, name) for kind, name in entity],
            [ValueData(key, value) for key, value in sorted(values.items())],
        )
        async for entity, values in call.pace().over(list(call.services.quota_admin.quotas.values().items()))
        if _fits(entity, request)
    ]
    return DescribeClientQuotasResponse(0, 0, None, entries)


def _problem(components: list[ComponentData]) -> str | None:
    kinds = [component.entity_type for component in components]
    if len(set(kinds)) != len(kinds):
        return "an entity type is asked for twice"
    for component in components:
        if component.entity_type not in (*ENTITY_TYPES, "ip"):
            return f'there are no quotas by "{component.entity_type}"'
        if component.match_type not in (EXACT, DEFAULT, ANY):
            return f"match type {component.match_type} is not known"
        if (component.match_type == EXACT) != (component.match is not None):
            return "an exact match needs a name, and only that has one"
    return None


def _fits(entity: Entity, request: DescribeClientQuotasRequest) -> bool:
    names = dict(entity)
    for component in request.components:
        if component.entity_type not in names:
            return False
        name = names[component.entity_type]
        if component.match_type == EXACT and name != component.match:
            return False
        if component.match_type == DEFAULT and name is not None:
            return False
    return not request.strict or len(names) == len(request.components)

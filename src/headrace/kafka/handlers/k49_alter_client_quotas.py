"""Door: AlterClientQuotas (49): byte rates and request time by user and client id (KIP-546).

Not offered: quotas by ip and rates of controller mutations; asking for them is an error, not silence.
"""

from __future__ import annotations

from headrace.cluster.quotas import Entity, entity_of, value_problem
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.limits import MAX_NAME_BYTES
from headrace.kafka.call import Call
from headrace.security.guard import Parts
from headrace.security.rights import CLUSTER, alter_configs, needs
from headrace.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntryData,
    EntryData,
)

KEY = 49
VERSIONS = (0, 1)
RIGHTS = needs(alter_configs(CLUSTER))
PARTS = (Parts("entries", "entries"),)


AT_ONCE = 50
"""Entities in one transaction of the coordinator."""

_Changes = dict[str, float | None]


async def handle(call: Call[AlterClientQuotasRequest]) -> AlterClientQuotasResponse:
    request = call.request
    pace = call.pace()
    problems: dict[int, HeadraceError] = {}
    wanted: dict[Entity, tuple[int, _Changes]] = {}
    async for place, entry in pace.over(enumerate(request.entries)):
        try:
            entity, changes = _parsed(entry)
            if entity in wanted:
                raise HeadraceError(ErrorKind.INVALID_REQUEST, "the entity is given twice")
            wanted[entity] = place, changes
        except HeadraceError as problem:
            problems[place] = problem
    if not request.validate_only:
        entities = list(wanted)
        for first in range(0, len(entities), AT_ONCE):
            chunk = entities[first : first + AT_ONCE]
            try:
                await call.services.quota_admin.alter({entity: wanted[entity][1] for entity in chunk})
            except HeadraceError as problem:
                problems.update({wanted[entity][0]: problem for entity in chunk})
            await pace.step(len(chunk))
    return AlterClientQuotasResponse(
        0,
        [
            AlterClientQuotasResponseEntryData(
                problems[place].kind.kafka_code if place in problems else 0,
                problems[place].detail if place in problems else None,
                entry.entity,
            )
            async for place, entry in pace.over(enumerate(request.entries))
        ],
    )


def _parsed(entry: EntryData) -> tuple[Entity, _Changes]:
    entity = entity_of((part.entity_type, part.entity_name) for part in entry.entity)
    if isinstance(entity, str):
        raise HeadraceError(ErrorKind.INVALID_REQUEST, entity)
    if any(name is not None and len(name) > MAX_NAME_BYTES for _, name in entity):
        raise HeadraceError(ErrorKind.INVALID_REQUEST, f"a name has at most {MAX_NAME_BYTES} characters")
    changes: _Changes = {}
    for op in entry.ops:
        if op.key in changes:
            raise HeadraceError(ErrorKind.INVALID_REQUEST, f"{op.key} is changed twice")
        problem = value_problem(op.key, 1.0 if op.remove else op.value)
        if problem is not None:
            raise HeadraceError(ErrorKind.INVALID_REQUEST, problem)
        changes[op.key] = None if op.remove else op.value
    return entity, changes

"""AlterClientQuotas, for tests."""

from __future__ import annotations

from raw_client import RawClient

from headrace.wire.api import ApiKey
from headrace.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)


def alter(
    raw: RawClient, entity: dict[str, str | None], *, validate_only: bool = False, **values: float | None
) -> int:
    parts = [EntityData(kind.replace("_", "-"), name) for kind, name in entity.items()]
    ops = [OpData(key, value or 0.0, value is None) for key, value in values.items()]
    request = AlterClientQuotasRequest([EntryData(parts, ops)], validate_only)
    code: int = raw.call(ApiKey.ALTER_CLIENT_QUOTAS, 1, request).entries[0].error_code
    return code

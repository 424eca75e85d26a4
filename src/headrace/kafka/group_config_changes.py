"""Door: configs of groups (KIP-1011): kept in the coordinator, all or nothing."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from headrace.broker.metadata import Decision, Metadata
from headrace.cluster import group_configs, keys
from headrace.cluster.changes import Change, PutKey
from headrace.cluster.configs import Alteration
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.plan import accepted


async def alter_group(
    metadata: Metadata, group: str, alterations: Sequence[Alteration], *, replace: bool, dry_run: bool
) -> None:
    """Raises HeadraceError."""
    if not group:
        raise HeadraceError(ErrorKind.INVALID_REQUEST, "the group id is empty")

    async def decide() -> Decision[None]:
        held = {} if replace else metadata.image.group_configs(group)
        configs = accepted(group_configs.alter_group(held, alterations, metadata.image.layers()))
        key = keys.opaque("groups", group)
        put = PutKey(key, msgspec.json.encode(configs))
        change = Change((metadata.unchanged(key),), (put,), f"configs of group {group}")
        return Decision(() if dry_run else (change,), None)

    await metadata.compare_and_swap(decide, "the same configs", contended=ErrorKind.REQUEST_TIMED_OUT)

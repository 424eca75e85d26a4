"""Door: configs of groups (KIP-1011): kept in the coordinator, all or nothing."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from headrace.broker.metadata import Metadata
from headrace.cluster import group_configs, keys
from headrace.cluster.changes import Change, Expect, PutKey
from headrace.cluster.configs import Alteration
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.plan import Rejected

ATTEMPTS = 5


async def alter_group(
    metadata: Metadata, group: str, alterations: Sequence[Alteration], *, replace: bool, dry_run: bool
) -> None:
    """Raises HeadraceError."""
    if not group:
        raise HeadraceError(ErrorKind.INVALID_REQUEST, "the group id is empty")
    for _ in range(ATTEMPTS):
        held = {} if replace else metadata.image.group_configs(group)
        configs = group_configs.alter_group(held, alterations, metadata.image.layers())
        if isinstance(configs, Rejected):
            raise HeadraceError(configs.kind, configs.detail)
        if dry_run:
            return
        key = keys.opaque("groups", group)
        change = Change(
            (Expect(key, "mod", metadata.image.mod_revision(key)),),
            (PutKey(key, msgspec.json.encode(configs)),),
            f"configs of group {group}",
        )
        if (await metadata.commit(change)).succeeded:
            return
    raise HeadraceError(ErrorKind.REQUEST_TIMED_OUT, "others keep changing the same configs; try again")

"""Door: configs of groups (KIP-1011): kept in the coordinator, all or nothing."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from headrace.broker.broker import Broker
from headrace.cluster import keys
from headrace.cluster.changes import Change, Compare, Put
from headrace.cluster.configs import Alteration, AlterOp
from headrace.cluster.group_configs import problem
from headrace.core.errors import ErrorKind, HeadraceError

ATTEMPTS = 5


async def alter_group(
    broker: Broker, group: str, alterations: Sequence[Alteration], *, replace: bool, dry_run: bool
) -> None:
    """Raises HeadraceError."""
    if not group:
        raise HeadraceError(ErrorKind.INVALID_REQUEST, "the group id is empty")
    for _ in range(ATTEMPTS):
        configs = {} if replace else broker.image.group_configs(group)
        for alteration in alterations:
            _apply(configs, alteration)
        if dry_run:
            return
        key = keys.opaque("groups", group)
        change = Change(
            (Compare(key, "mod", broker.image.mod_revision(key)),),
            (Put(key, msgspec.json.encode(configs)),),
            f"configs of group {group}",
        )
        if (await broker.metadata.commit(change)).succeeded:
            return
    raise HeadraceError(ErrorKind.REQUEST_TIMED_OUT, "others keep changing the same configs; try again")


def _apply(configs: dict[str, str], alteration: Alteration) -> None:
    if alteration.op is AlterOp.DELETE:
        configs.pop(alteration.name, None)
        return
    if alteration.op is not AlterOp.SET or alteration.value is None:
        raise HeadraceError(ErrorKind.INVALID_CONFIG, f"{alteration.name} can only be set or deleted")
    complaint = problem(alteration.name, alteration.value)
    if complaint is not None:
        raise HeadraceError(ErrorKind.INVALID_CONFIG, complaint)
    configs[alteration.name] = alteration.value

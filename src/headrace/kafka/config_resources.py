"""Door: what the three config APIs share: resource types, and whose configs a broker resource means."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from headrace.broker.services import Services
from headrace.cluster.configs import Alteration
from headrace.cluster.image import ClusterImage
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.units import is_digits
from headrace.kafka.group_config_changes import alter_group


class ResourceType(IntEnum):
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


def broker_of(image: ClusterImage, name: str) -> int | ErrorKind | None:
    """The broker a resource names; None for the cluster-wide default (an empty name)."""
    if name == "":
        return None
    if not is_digits(name) or image.broker(int(name)) is None:
        return ErrorKind.INVALID_REQUEST
    return int(name)


async def alter(
    services: Services,
    resource_type: int,
    name: str,
    alterations: Sequence[Alteration],
    *,
    replace: bool,
    dry_run: bool,
    since: int,
) -> None:
    """Carry out one resource's alterations, all or nothing. Raises HeadraceError."""
    if resource_type == ResourceType.TOPIC:
        await services.topics.alter_configs(
            name, alterations, replace=replace, validate_only=dry_run, since=since
        )
    elif resource_type == ResourceType.BROKER:
        broker_id = broker_of(services.broker.image, name)
        if isinstance(broker_id, ErrorKind):
            raise HeadraceError(broker_id, f"there is no broker {name!r}")
        await services.topics.alter_broker_configs(
            broker_id, alterations, replace=replace, validate_only=dry_run, since=since
        )
    elif resource_type == ResourceType.GROUP:
        await alter_group(services.broker.metadata, name, alterations, replace=replace, dry_run=dry_run)
    else:
        raise HeadraceError(ErrorKind.INVALID_REQUEST, "only topics, brokers and groups have configs here")

"""Door: what the three config APIs share: resource types, and whose configs a broker resource means."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import NamedTuple

from headrace.broker.services import Services
from headrace.cluster.configs import Alteration
from headrace.cluster.image import ClusterImage
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.units import is_digits
from headrace.kafka.group_config_changes import alter_group
from headrace.security.rights import CLUSTER, GROUP, TOPIC, alter_configs, needs


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


ALTERING = needs(
    alter_configs(TOPIC, "resources[].resource_name").when("resource_type", ResourceType.TOPIC),
    alter_configs(GROUP, "resources[].resource_name").when("resource_type", ResourceType.GROUP),
    alter_configs(CLUSTER, "resources[].resource_type").when("resource_type", ResourceType.BROKER),
)


class Altered(NamedTuple):
    """What is answered about a resource."""

    error_code: int
    message: str | None
    resource_type: int
    name: str


async def altered(
    services: Services,
    resource_type: int,
    name: str,
    alterations: Callable[[], Sequence[Alteration]],
    *,
    replace: bool,
    dry_run: bool,
    since: int,
) -> Altered:
    """One resource's alterations are carried out, all or nothing."""
    kind, message = ErrorKind.NONE, None
    try:
        wanted = alterations()
        await _alter(services, resource_type, name, wanted, replace=replace, dry_run=dry_run, since=since)
    except HeadraceError as problem:
        kind, message = problem.kind, problem.detail
    return Altered(kind.kafka_code, message, resource_type, name)


async def _alter(
    services: Services,
    resource_type: int,
    name: str,
    alterations: Sequence[Alteration],
    *,
    replace: bool,
    dry_run: bool,
    since: int,
) -> None:
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

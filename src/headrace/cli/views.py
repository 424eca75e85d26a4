"""Command: which topics are views, asked through their configs like everything else on the Kafka door."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from confluent_kafka.admin import ConfigResource  # type: ignore[attr-defined]

from headrace.cli.broker_link import BrokerLink
from headrace.cli.failure import Exit, Failure, did_you_mean
from headrace.cluster.views import VIEW_SOURCE, VIEW_WHERE


class View(NamedTuple):
    name: str
    source: str
    where: str


def views_among(link: BrokerLink, topics: Iterable[str]) -> dict[str, View]:
    resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in topics]
    if not resources:
        return {}
    futures = link.admin.describe_configs(resources, request_timeout=link.timeout_s)
    found = {}
    for resource, future in futures.items():
        configs = link.answer(future)
        # Another Kafka than ours knows no views.
        source = configs[VIEW_SOURCE].value if VIEW_SOURCE in configs else None
        if source:
            found[resource.name] = View(resource.name, source, configs[VIEW_WHERE].value or "")
    return found


def need_views(link: BrokerLink, names: Iterable[str]) -> dict[str, View]:
    """These views; not found, with the nearest name or what it is instead, otherwise."""
    known = link.topics(internal=False)
    views = views_among(link, known)
    for name in names:
        if name in views:
            continue
        if name in known:
            raise Failure(
                Exit.NOT_FOUND, f'"{name}" is a topic and not a view', f"headrace topic describe {name}"
            )
        hint = did_you_mean(name, views) or "headrace view list"
        raise Failure(Exit.NOT_FOUND, f'there is no view "{name}"', hint, code="UNKNOWN_TOPIC_OR_PARTITION")
    return {name: views[name] for name in names}


def about_views(link: BrokerLink, topic: str, refused: Failure) -> Failure:
    """librdkafka keeps the broker's words to itself: where a refusal has to do with views, ours (F52)."""
    try:
        views = views_among(link, link.topics(internal=False))
    except Failure:
        return refused
    if topic in views:
        view = views[topic]
        return Failure(
            Exit.CONFLICT,
            f'"{topic}" is a view of {view.source}, and a view can only be read',
            f"headrace topic produce {view.source} …",
            code=refused.code,
        )
    built = [view.name for view in views.values() if view.source == topic]
    if built:
        return Failure(
            Exit.CONFLICT,
            f'topic "{topic}" has views: {", ".join(built)}',
            f"headrace view delete {' '.join(built)}",
            code=refused.code,
        )
    return refused

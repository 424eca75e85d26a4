"""Views in the image and in the coordinator: they have their source's partitions, and nobody can take it from under them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cluster_world import ClusterWorld

from headrace.cluster import keys
from headrace.cluster.configs import Alteration, AlterOp
from headrace.cluster.controller import reconcile
from headrace.cluster.deltas import TopicConfigChanged, TopicGone, Undecodable
from headrace.cluster.image import ClusterImage
from headrace.cluster.reassignment import drain, spread
from headrace.cluster.topics import (
    CreatedTopic,
    CreateTopic,
    alter_topic_configs,
    create_partitions,
    delete_topic,
    replace_topic_configs,
)
from headrace.cluster.views import VIEW_SOURCE, VIEW_WHERE
from headrace.core.errors import ErrorKind
from headrace.core.plan import Rejected

WHERE = 'tag == "eu"'


def view(name: str = "eu", source: str = "orders", where: str = WHERE, **other: Any) -> CreateTopic:
    return CreateTopic(name, configs={VIEW_SOURCE: source, VIEW_WHERE: where, **other})


@pytest.fixture
def world() -> ClusterWorld:
    world = ClusterWorld(1, 2, 3)
    topic = world.decide_topic(CreateTopic("orders", 4, 2))
    assert isinstance(topic, CreatedTopic)
    world.do(*topic.changes)
    return world


def make(world: ClusterWorld, wanted: CreateTopic) -> None:
    decided = world.decide_topic(wanted)
    assert isinstance(decided, CreatedTopic), decided
    world.do(*decided.changes)


def refusal(decided: Any) -> tuple[ErrorKind, str]:
    assert isinstance(decided, Rejected), decided
    return decided.kind, decided.detail


def test_a_view_has_the_partitions_of_its_source(world: ClusterWorld) -> None:
    make(world, view())
    image = world.image
    orders, eu = image.topic("orders"), image.topic("eu")
    assert orders is not None and eu is not None and eu.view is not None
    assert eu.partitions == orders.partitions and len(eu.partitions) == 4
    assert image.partition("eu", 3) is image.partition("orders", 3)
    assert (eu.view.source, eu.view.where) == ("orders", WHERE)
    assert image.topic_by_id(eu.id) is eu and eu.id != orders.id
    assert [topic.name for topic, _, _ in image.all_partitions()] == ["orders"] * 4, "counted once"
    world.fail(orders.partitions[0].leader)  # type: ignore[union-attr]
    assert eu.partitions[0] == image.topic("orders").partitions[0], "and it follows its leaders"  # type: ignore[union-attr]


def test_nobody_elects_moves_or_clears_away_for_a_view(world: ClusterWorld) -> None:
    make(world, view())
    assert not reconcile(world.image, world.controller_epoch).changes
    assert all(move.topic.name == "orders" for move in drain(world.image, 1))
    world.register(4)
    world.settle()
    assert all(move.topic.name == "orders" for move in spread(world.image))


def test_a_view_grows_with_its_source_and_not_alone(world: ClusterWorld) -> None:
    make(world, view())
    orders, eu = world.image.topic("orders"), world.image.topic("eu")
    assert orders is not None and eu is not None
    assert refusal(create_partitions(world.image, eu, 6, controller_epoch=world.controller_epoch))[0] is (
        ErrorKind.INVALID_PARTITIONS
    )
    grown = create_partitions(world.image, orders, 6, controller_epoch=world.controller_epoch)
    assert not isinstance(grown, Rejected)
    world.do(*grown.changes)
    assert len(eu.partitions) == 6 and eu.partitions[5] is not None


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (view(source="nowhere"), "there is no topic nowhere"),
        (view(source="__consumer_offsets"), "internal"),
        (view(where="tag == "), "^"),
        (view(where=""), "empty"),
        (view(where='nothing == "x"'), "there is no field"),
        (CreateTopic("eu", configs={VIEW_WHERE: WHERE}), "needs headrace.view.source"),
        (view(**{"retention.ms": "1000"}), "retention.ms means nothing"),
        (CreateTopic("eu", 3, configs={VIEW_SOURCE: "orders", VIEW_WHERE: WHERE}), "4 of them"),
    ],
)
def test_what_can_not_be_a_view(world: ClusterWorld, wanted: CreateTopic, words: str) -> None:
    kind, detail = refusal(world.decide_topic(wanted))
    assert words in detail
    assert kind in (ErrorKind.INVALID_CONFIG, ErrorKind.INVALID_PARTITIONS)


def test_a_view_of_a_view_is_refused_with_the_way_out(world: ClusterWorld) -> None:
    make(world, view())
    kind, detail = refusal(world.decide_topic(view("deep", "eu")))
    assert kind is ErrorKind.INVALID_CONFIG and "make one of orders" in detail


def test_a_view_can_not_be_changed_nor_a_topic_made_one(world: ClusterWorld) -> None:
    make(world, view())
    eu, orders = world.image.topic("eu"), world.image.topic("orders")
    assert eu is not None and orders is not None
    change = [Alteration("retention.ms", AlterOp.SET, "1")]
    assert "is a view" in refusal(alter_topic_configs(world.image, eu, change, world.controller_epoch))[1]
    assert "is a view" in refusal(replace_topic_configs(world.image, eu, {}, world.controller_epoch))[1]
    change = [Alteration("view.where", AlterOp.SET, "true")]
    assert (
        "when a view is created"
        in refusal(alter_topic_configs(world.image, orders, change, world.controller_epoch))[1]
    )


def test_the_source_of_a_view_is_not_deleted(world: ClusterWorld) -> None:
    make(world, view())
    orders, eu = world.image.topic("orders"), world.image.topic("eu")
    assert orders is not None and eu is not None
    kind, detail = refusal(delete_topic(world.image, orders, world.controller_epoch))
    assert kind is ErrorKind.POLICY_VIOLATION and "eu" in detail
    gone = delete_topic(world.image, eu, world.controller_epoch)
    assert not isinstance(gone, Rejected)
    assert TopicGone("eu", eu.id, 0) in world.do(*gone)
    gone = delete_topic(world.image, orders, world.controller_epoch)
    assert not isinstance(gone, Rejected)
    world.do(*gone)
    assert not world.image.topics


def test_a_deletion_that_did_not_know_of_the_view_fails(world: ClusterWorld) -> None:
    """R1: both decided from the same image; whichever comes second is refused by its compare."""
    orders = world.image.topic("orders")
    assert orders is not None
    deletion = delete_topic(world.image, orders, world.controller_epoch)
    creation = world.decide_topic(view())
    assert not isinstance(deletion, Rejected) and isinstance(creation, CreatedTopic)
    assert world.attempt(creation.changes[0])
    assert not world.attempt(deletion[0])
    assert world.image.topic("orders") is orders


def test_a_view_of_a_topic_that_was_just_deleted_fails(world: ClusterWorld) -> None:
    orders = world.image.topic("orders")
    assert orders is not None
    deletion = delete_topic(world.image, orders, world.controller_epoch)
    creation = world.decide_topic(view())
    assert not isinstance(deletion, Rejected) and isinstance(creation, CreatedTopic)
    assert world.attempt(deletion[0])
    assert not world.attempt(creation.changes[0])


def test_the_source_is_touched_and_not_changed(world: ClusterWorld) -> None:
    decided = world.decide_topic(view())
    assert isinstance(decided, CreatedTopic)
    deltas = world.do(*decided.changes)
    assert not any(isinstance(delta, TopicConfigChanged) for delta in deltas)


def test_a_snapshot_brings_views_and_sources_in_any_order(world: ClusterWorld) -> None:
    make(world, view("a-first"))
    make(world, view("z-last"))
    image = ClusterImage(2)
    image.resync(world.store.snapshot(), world.store.revision)
    for name in ("a-first", "z-last"):
        assert len(image.topic(name).partitions) == 4  # type: ignore[union-attr]
        assert image.partition(name, 2) == world.image.partition("orders", 2) is not None
    assert image.views_of("orders") == ["a-first", "z-last"]


@pytest.mark.parametrize(
    ("partitions", "configs"),
    [
        (0, {}),
        (1, {VIEW_SOURCE: "orders", VIEW_WHERE: WHERE}),
        (0, {VIEW_SOURCE: "orders", VIEW_WHERE: "tag =="}),
        (0, {VIEW_SOURCE: "orders"}),
    ],
)
def test_a_value_that_is_neither_topic_nor_view_is_not_believed(
    world: ClusterWorld, partitions: int, configs: dict[str, str]
) -> None:
    """X27."""
    value = json.dumps(
        {"id": "ab" * 16, "partitions": partitions, "configs": configs, "created_ms": 1}
    ).encode()
    world.store.put(keys.topic("odd"), value)
    assert any(isinstance(delta, Undecodable) for delta in world.catch_up())
    assert world.image.topic("odd") is None

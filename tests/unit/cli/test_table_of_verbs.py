"""No verb of the table of nouns and verbs (the project's specs/experience.md, section 1) is absent, except those that say why."""

from __future__ import annotations

import click
import pytest

from headrace.cli.main import main

TABLE = {
    "": "start stop status top doctor version completion open cheat",
    "topic": "create list describe alter delete produce consume tail peek trim export import copy search",
    "queue": "create list describe send receive peek ack extend purge delete set stats",
    "dlq": "list peek redrive status cancel",
    "group": "list describe lag seek delete copy-offsets delete-offsets",
    "webhook": "add list test pause resume deliveries retry remove",
    "pipeline": "init validate run submit list status logs stop checkpoint",
    "schema": "register list get check delete compat",
    "subscription": "create list describe set delete",
    "cluster": "init join nodes partitions rebalance drain health elect unregister",
    "cluster config": "get set",
    "user": "create list delete",
    "acl": "add list remove",
    "token": "create list delete",
    "context": "add use list show rm",
    "bench": "produce consume queue latency",
    "generate": "grafana-dashboard prometheus-config alerts systemd compose k8s client",
    "debug": "bundle dump-log trace",
}
ELSEWHERE = {
    "cluster init": "headrace serve --coordinator etcd://… makes a cluster where there is none",
    "cluster join": "headrace serve --coordinator etcd://… joins the one that is there",
    "cluster health": "headrace cluster status",
    "debug trace": "headrace topic trace",
}
"""Verbs of the table that are not there, and what is instead."""


def commands(noun: str) -> set[str]:
    group: click.Command | None = main
    for word in noun.split():
        assert isinstance(group, click.Group)
        group = group.get_command(click.Context(group), word)
    assert isinstance(group, click.Group), noun
    return set(group.list_commands(click.Context(group)))


@pytest.mark.parametrize("noun", TABLE)
def test_no_verb_is_absent(noun: str) -> None:
    there = commands(noun)
    wanted = set(TABLE[noun].split())
    excused = {verb for verb in wanted if f"{noun} {verb}" in ELSEWHERE}
    assert wanted - there == excused


OPTIONS = {
    "topic alter": "--replicas --config --partitions",
    "queue stats": "--watch",
    "group lag": "--watch",
    "group seek": "--dry-run",
    "dlq redrive": "--to --rate --filter --max --dry-run",
    "topic produce": "--file --key-field --rate --header --key",
    "topic consume": "--grep --where --decode",
    "topic list": "--output --json --no-input --no-color --no-progress --quiet --verbose --timeout --context --bootstrap",
}
"""What the table promises of single verbs, and of all of them (the last row)."""


@pytest.mark.parametrize("verb", OPTIONS)
def test_no_option_is_absent(verb: str) -> None:
    command: click.Command | None = main
    for word in verb.split():
        assert isinstance(command, click.Group)
        command = command.get_command(click.Context(command), word)
    assert command is not None
    there = {name for parameter in command.params for name in parameter.opts}
    assert not set(OPTIONS[verb].split()) - there


def test_what_stands_in_for_a_verb_is_there() -> None:
    named = [text for text in ELSEWHERE.values() if text.startswith("headrace ")]
    for noun, verb in (text.split()[1:3] for text in named if "serve" not in text):
        assert verb in commands(noun)

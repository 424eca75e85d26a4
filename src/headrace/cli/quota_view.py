"""Command: quotas in words, and as Kafka's requests have them, so these commands work against any Kafka (A62)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import click

from headrace.cli.cluster_view import ClusterLink
from headrace.cli.completing import complete_users
from headrace.cli.failure import Exit, Failure, failure_of
from headrace.cli.invocation import Invocation
from headrace.cli.output import Column, Row
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.wire.api import ApiKey
from headrace.wire.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from headrace.wire.messages.describe_client_quotas import DescribeClientQuotasRequest

PRODUCE, CONSUME, REQUESTS = "producer_byte_rate", "consumer_byte_rate", "request_percentage"
EVERYBODY = "*"
"""Whoever has no quota of their own: each of them has this one."""


class QuotaRow(Row):
    SCHEMA: ClassVar[str] = "headrace.quota/v1"
    NAME: ClassVar[str] = "user"
    user: str | None
    """`*`: each user without a quota of their own; null: whoever it is."""
    client_id: str | None
    produce: float | None
    """Bytes a second; null: no limit."""
    consume: float | None
    requests: float | None
    """Percent of a second of the broker's time; 100 is one core."""


COLUMNS: list[Column] = [
    Column("USER", lambda row: row.user or "any"),
    Column("CLIENT ID", lambda row: row.client_id or "any"),
    Column("PRODUCE B/S", lambda row: _number(row.produce), right=True),
    Column("CONSUME B/S", lambda row: _number(row.consume), right=True),
    Column("REQUESTS %", lambda row: _number(row.requests), right=True),
]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:g}" if value < 1e6 else f"{value:.0f}"


def whom(command: Callable[..., Any]) -> Callable[..., Any]:
    user = click.option(
        "--user", shell_complete=complete_users, help="This user; * is each without one of their own."
    )
    client = click.option("--client-id", help="Programs that call themselves so; * likewise.")
    return user(client(command))


def quotas(run: Invocation) -> list[QuotaRow]:
    (answer,) = ClusterLink(run.link).ask(
        (ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, DescribeClientQuotasRequest([], False))
    )
    _need(answer.error_code, answer.error_message)
    rows = []
    for entry in answer.entries or ():
        who = {part.entity_type: part.entity_name or EVERYBODY for part in entry.entity}
        values = {each.key: each.value for each in entry.values}
        rows.append(
            QuotaRow(
                user=who.get("user"),
                client_id=who.get("client-id"),
                produce=values.get(PRODUCE),
                consume=values.get(CONSUME),
                requests=values.get(REQUESTS),
            )
        )
    return sorted(rows, key=lambda row: (row.user or "", row.client_id or ""))


def change(
    run: Invocation, user: str | None, client_id: str | None, values: Mapping[str, float | None]
) -> list[QuotaRow]:
    """`values`: by key; None takes one away. What there is for them now."""
    parts = {"user": user, "client-id": client_id}
    entity = [
        EntityData(kind, None if name == EVERYBODY else name)
        for kind, name in parts.items()
        if name is not None
    ]
    if not entity:
        raise Failure(Exit.USAGE, "whose quota?", "--user NAME, --client-id NAME, or both")
    ops = [OpData(key, value or 0.0, value is None) for key, value in values.items()]
    (answer,) = ClusterLink(run.link).ask(
        (ApiKey.ALTER_CLIENT_QUOTAS, 1, AlterClientQuotasRequest([EntryData(entity, ops)], False))
    )
    for entry in answer.entries:
        _need(entry.error_code, entry.error_message)
    return [row for row in quotas(run) if (row.user, row.client_id) == (user, client_id)]


def _need(code: int, words: str | None) -> None:
    if code:
        raise failure_of(HeadraceError(ErrorKind(code), words or ""), "quotas")

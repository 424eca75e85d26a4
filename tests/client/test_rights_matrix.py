"""P4: every API that needs a right, asked by users with nothing, one right, all but one, a prefix, everything of a kind, a right of another host, and a token that
may less: each answer against the specification's table, which stands here once more and is not the broker's own.

A cell is an API asked by one user. `make test` tries a twelfth of the users, `make security` all of them: more than 5,000 cells.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import pytest
from raw_client import RawClient, fetch_request, produce_request
from raw_login import authenticate, log_in, shake
from raw_share import topic_id
from secured import ADMIN, PASSWORD, Secured

from headrace.cli.user_view import scram_records
from headrace.testing.local_broker import LocalBroker
from headrace.wire.api import API, ApiKey
from headrace.wire.messages.create_acls import AclCreation, CreateAclsRequest
from headrace.wire.schema import STRUCTS, FieldKind

pytestmark = [pytest.mark.client, pytest.mark.timeout(1800)]

LONG = os.environ.get("HEADRACE_SECURITY") == "1"
EVERY = 1 if LONG else 12
WORD = "a word"
ABSENT, KEPT, GROUP, TXN = "matrix-absent", "matrix-kept", "matrix-group", "matrix-txn"
"""Nothing is there but one topic, for requests that name it by its id: what is forbidden and what is absent look alike (A44), so nothing is changed."""
NAMES = {"Topic": (ABSENT, KEPT), "Group": (GROUP,), "Cluster": ("kafka-cluster",), "TransactionalId": (TXN,)}
KINDS = {"Topic": 2, "Group": 3, "Cluster": 4, "TransactionalId": 5}
OPERATIONS = {
    "All": 2, "Read": 3, "Write": 4, "Create": 5, "Delete": 6, "Alter": 7, "Describe": 8, "DescribeConfigs": 10,
    "AlterConfigs": 11, "IdempotentWrite": 12,
}  # fmt: skip
SINGLE = [
    *(("Topic", each) for each in ("Read", "Write", "Create", "Delete", "Alter", "Describe", "DescribeConfigs", "AlterConfigs")),
    *(("Group", each) for each in ("Read", "Delete", "Describe", "DescribeConfigs", "AlterConfigs")),
    *(("Cluster", each) for each in ("Create", "Alter", "Describe", "DescribeConfigs", "AlterConfigs", "IdempotentWrite")),
    *(("TransactionalId", each) for each in ("Write", "Describe")),
]  # fmt: skip
IMPLIED = {
    "Describe": ("Read", "Write", "Delete", "Alter"),
    "DescribeConfigs": ("AlterConfigs",),
}
Need = tuple[str, str]
TOPIC_BY_NAME = {"topics[].name": ABSENT, "topics[].partitions[]": None}


class Row(NamedTuple):
    """An API, where names stand in a request of it, and what it takes: of each of `needs` one."""

    key: int
    version: int
    fields: dict[str, Any]
    needs: tuple[tuple[Need, ...], ...]


def row(key: int, version: int, fields: dict[str, Any], *needs: Need | tuple[Need, ...]) -> Row:
    return Row(key, version, fields, tuple((each,) if isinstance(each[0], str) else each for each in needs))


def t(operation: str) -> Need:
    return ("Topic", operation)


def g(operation: str) -> Need:
    return ("Group", operation)


def c(operation: str) -> Need:
    return ("Cluster", operation)


def x(operation: str) -> Need:
    return ("TransactionalId", operation)


BY_ID = object()
ROWS = [
    row(0, 9, {}, t("Write")),
    row(1, 11, {}, t("Read")),
    row(2, 5, TOPIC_BY_NAME | {"replica_id": -1}, t("Describe")),
    row(8, 7, TOPIC_BY_NAME | {"group_id": GROUP}, g("Read"), t("Read")),
    row(9, 5, {"topics[].name": ABSENT, "topics[].partition_indexes[]": 0, "group_id": GROUP}, g("Describe"), t("Describe")),
    row(10, 2, {"key": GROUP, "key_type": 0}, g("Describe")),
    row(10, 2, {"key": TXN, "key_type": 1}, x("Describe")),
    row(11, 5, {"group_id": GROUP}, g("Read")),
    row(12, 3, {"group_id": GROUP}, g("Read")),
    row(13, 2, {"group_id": GROUP}, g("Read")),
    row(14, 3, {"group_id": GROUP}, g("Read")),
    row(15, 4, {"groups[]": GROUP}, g("Describe")),
    row(19, 4, {"topics[].name": ABSENT}, (c("Create"), t("Create"))),
    row(20, 4, {"topic_names[]": ABSENT}, t("Delete")),
    row(21, 1, TOPIC_BY_NAME, t("Delete")),
    row(22, 3, {"transactional_id": TXN}, x("Write")),
    row(22, 3, {"transactional_id": None}, c("IdempotentWrite")),  # Write on some topic implies it, and a denial wins (A37)
    row(23, 3, {"topics[].topic": ABSENT, "topics[].partitions[]": None, "replica_id": -1}, t("Describe")),
    row(24, 2, {"v3_and_below_transactional_id": TXN, "v3_and_below_topics[].name": ABSENT, "v3_and_below_topics[].partitions[]": 0}, x("Write"), t("Write")),
    row(25, 2, {"transactional_id": TXN, "group_id": GROUP}, x("Write"), g("Read")),
    row(26, 2, {"transactional_id": TXN}, x("Write")),
    row(27, 1, {"markers[].topics[].name": ABSENT, "markers[].topics[].partition_indexes[]": 0}, c("Alter")),
    row(28, 2, TOPIC_BY_NAME | {"transactional_id": TXN, "group_id": GROUP}, x("Write"), g("Read"), t("Read")),
    row(29, 2, {}, c("Describe")),
    row(30, 2, {"creations[]": None}, c("Alter")),
    row(31, 2, {"filters[]": None}, c("Alter")),
    row(32, 2, {"resources[].resource_name": ABSENT, "resources[].resource_type": 2}, t("DescribeConfigs")),
    row(32, 2, {"resources[].resource_name": GROUP, "resources[].resource_type": 32}, g("DescribeConfigs")),
    row(32, 2, {"resources[].resource_name": "1", "resources[].resource_type": 4}, c("DescribeConfigs")),
    row(33, 1, {"resources[].resource_name": ABSENT, "resources[].resource_type": 2, "validate_only": True}, t("AlterConfigs")),
    row(44, 0, {"resources[].resource_name": ABSENT, "resources[].resource_type": 2, "validate_only": True}, t("AlterConfigs")),
    row(44, 0, {"resources[].resource_name": GROUP, "resources[].resource_type": 32, "validate_only": True}, g("AlterConfigs")),
    row(44, 0, {"resources[].resource_name": "1", "resources[].resource_type": 4, "validate_only": True}, c("AlterConfigs")),
    row(35, 1, {}, c("Describe")),
    row(37, 1, {"topics[].name": ABSENT}, t("Alter")),
    row(42, 1, {"groups_names[]": GROUP}, g("Delete")),
    row(45, 0, {}, c("Alter")),
    row(46, 0, {}, c("Describe")),
    row(47, 0, TOPIC_BY_NAME | {"group_id": GROUP}, g("Delete"), t("Read")),
    row(48, 0, {}, c("DescribeConfigs")),
    row(49, 0, {"entries[]": None, "validate_only": True}, c("AlterConfigs")),
    row(50, 0, {}, c("Describe")),
    row(51, 0, {"deletions[]": None}, c("Alter")),
    row(61, 0, {"topics[].name": ABSENT, "topics[].partition_indexes[]": 0}, t("Read")),
    row(64, 0, {"broker_id": 999_999}, c("Alter")),
    row(65, 0, {"transactional_ids[]": TXN}, x("Describe")),
    row(69, 0, {"group_ids[]": GROUP}, g("Describe")),
    row(75, 0, {"topics[].name": ABSENT}, t("Describe")),
    row(77, 1, {"group_ids[]": GROUP}, g("Describe")),
    row(78, 1, {"group_id": GROUP, "member_id": "m", "topics[].topic_id": BY_ID, "topics[].partitions[]": None}, g("Read"), t("Read")),
    row(90, 0, {"groups[].group_id": GROUP}, g("Describe")),
    row(91, 0, {"group_id": GROUP, "topics[].topic_name": ABSENT, "topics[].partitions[]": None}, g("Read"), t("Read")),
    row(92, 0, {"group_id": GROUP, "topics[].topic_name": ABSENT}, g("Delete"), t("Read")),
]  # fmt: skip

REFUSALS = {29, 30, 31, 53, 100}


class Holder(NamedTuple):
    """Somebody, and what they hold."""

    name: str
    allows: frozenset[Need]
    denies: frozenset[Need] = frozenset()
    acls: tuple[AclCreation, ...] = ()
    token: tuple[dict[str, str], ...] | None = None
    """Of the super user, for these alone."""

    def may(self, need: Need) -> bool:
        kind, operation = need
        if need in self.denies:
            return False
        held = {one for resource, one in self.allows if resource == kind}
        if (
            operation == "IdempotentWrite"
            and ("Topic", "Write") in self.allows
            and ("Topic", "Write") not in self.denies
        ):
            return True
        return operation in held or "All" in held or bool(held & set(IMPLIED.get(operation, ())))

    def passes(self, asked: Row) -> bool:
        return all(any(self.may(need) for need in choices) for choices in asked.needs)


def acls(user: str, kind: str, operation: str, *, pattern: str = "literal", host: str = "*", deny: bool = False) -> tuple[AclCreation, ...]:  # fmt: skip
    names = {"literal": NAMES[kind], "prefixed": ("matrix-",), "any": ("*",)}[
        "literal" if kind == "Cluster" else pattern
    ]
    number = 4 if pattern == "prefixed" and kind != "Cluster" else 3
    return tuple(
        AclCreation(KINDS[kind], name, number, f"User:{user}", host, OPERATIONS[operation], 2 if deny else 3)
        for name in names
    )


def holders() -> Iterator[Holder]:
    yield Holder("nothing", frozenset())
    everything = frozenset((kind, "All") for kind in KINDS)
    for kind, operation in SINGLE:
        one = frozenset({(kind, operation)})
        word = f"{kind}-{operation}".lower()
        for pattern in ("literal", "prefixed", "any"):
            user = f"{word}-{pattern}"
            yield Holder(user, one, acls=acls(user, kind, operation, pattern=pattern))
        user = f"{word}-elsewhere"
        yield Holder(user, frozenset(), acls=acls(user, kind, operation, host="10.9.8.7"))
        user = f"{word}-denied"
        all_of_it = tuple(acl for each in KINDS for acl in acls(user, each, "All", pattern="any"))
        yield Holder(user, everything, one, all_of_it + acls(user, kind, operation, deny=True))
        name = "" if kind == "Cluster" else "matrix-*"
        yield Holder(f"{word}-token", one, token=({"operation": operation, "resource": kind, "name": name},))


@pytest.fixture(scope="module")
def secured() -> Iterator[Secured]:
    with LocalBroker(allow_plain_without_tls=True) as running:
        yield Secured(running)  # type: ignore[arg-type]


def fill(request: Any, place: str, value: Any) -> None:
    """Put a value where `topics[].name` says; `None` for a list makes one entry as it is by default."""
    holder = request
    *path, last = place.split(".")
    for part in path:
        entries = getattr(holder, part.removesuffix("[]"))
        if not entries:
            entries.append(made(holder, part))
        holder = entries[0]
    if last.endswith("[]"):
        if getattr(holder, last[:-2]) is None:
            setattr(holder, last[:-2], [])
        getattr(holder, last[:-2]).append(made(holder, last) if value is None else value)
    else:
        setattr(holder, last, value)


def made(holder: Any, part: str) -> Any:
    (spec,) = [each for each in STRUCTS[type(holder)] if each.name == part.removesuffix("[]")]
    assert spec.element is not None
    return spec.element.struct() if spec.element.kind is FieldKind.STRUCT else 0  # type: ignore[misc]


def request_of(asked: Row, kept: bytes) -> Any:
    if asked.key == ApiKey.PRODUCE:
        return produce_request(ABSENT, b"", 0, 1)
    if asked.key == ApiKey.FETCH:
        return fetch_request([(ABSENT, 0, 0)])
    request = API[asked.key].request()
    for place, value in asked.fields.items():
        fill(request, place, kept if value is BY_ID else value)
    return request


def codes(value: Any) -> Iterator[int]:
    if isinstance(value, list):
        for each in value:
            yield from codes(each)
        return
    names = [spec.name for spec in STRUCTS.get(type(value), ())] or [*getattr(value, "_fields", ())]
    for name in names:
        held = getattr(value, name)
        if name.endswith("error_code"):
            yield held
        else:
            yield from codes(held)


class Asker:
    """One holder at the Kafka door; a refusal that has no place in an answer ends the connection, and then it comes again."""

    def __init__(self, secured: Secured, holder: Holder, token: str) -> None:
        self._port = secured.broker.kafka_port
        self._holder = holder
        self._token = token
        self._client: RawClient | None = None

    def is_refused(self, asked: Row, kept: bytes) -> bool:
        if self._client is None:
            self._client = RawClient(self._port)
            if self._token:
                assert shake(self._client, "OAUTHBEARER").error_code == 0
                message = f"n,,\x01auth=Bearer {self._token}\x01\x01".encode()
                assert authenticate(self._client, message).error_code == 0
            else:
                log_in(self._client, self._holder.name, WORD)
        try:
            answer = self._client.call(asked.key, asked.version, request_of(asked, kept))
        except ConnectionError:
            self._client = None
            return True
        return bool(REFUSALS & set(codes(answer)))

    def close(self) -> None:
        if self._client is not None:
            self._client.close()


def prepare(secured: Secured, chosen: Iterable[Holder]) -> dict[str, str]:
    """Their users, rights and tokens; the tokens by name."""
    record, tokens = scram_records(WORD, 4096), {}
    rights: list[Any] = []
    for holder in chosen:
        if holder.token is not None:
            tokens[holder.name] = secured.ask("POST", "/tokens", {"rights": list(holder.token)})["token"]
        else:
            secured.ask("POST", "/users", {"name": holder.name, "scram": record})
            rights += holder.acls
    admin = RawClient(secured.broker.kafka_port)
    log_in(admin, ADMIN, PASSWORD)
    for first in range(0, len(rights), 100):
        answer = admin.call(ApiKey.CREATE_ACLS, 2, CreateAclsRequest(rights[first : first + 100]))
        assert {each.error_code for each in answer.results} == {0}, answer
    admin.close()
    return tokens


def test_p4_every_api_is_as_open_as_the_table_says(secured: Secured) -> None:
    secured.topic(KEPT)
    chosen = list(holders())[::EVERY]
    tokens = prepare(secured, chosen)
    admin = RawClient(secured.broker.kafka_port)
    log_in(admin, ADMIN, PASSWORD)
    kept = topic_id(admin, KEPT)
    cells, wrong, allowed = 0, [], 0
    for holder in [*chosen, Holder(ADMIN, frozenset((kind, "All") for kind in KINDS))]:
        asker = Asker(secured, holder, tokens.get(holder.name, ""))
        if holder.name == ADMIN:
            asker._client = admin
        for asked in ROWS:
            cells += 1
            passes = holder.passes(asked)
            allowed += passes
            if asker.is_refused(asked, kept) == passes:
                name = API[asked.key].name
                wrong.append(f"{holder.name} {name}: {'should pass' if passes else 'should be refused'}")
        asker.close()
    assert not wrong, wrong[:40]
    assert allowed > cells / 20, "the table does not refuse everything"
    assert cells > 5_000 or not LONG, cells

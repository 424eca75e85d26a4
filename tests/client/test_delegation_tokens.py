"""A43: delegation tokens (KIP-48) frame by frame: made, shown, renewed, ended, and what logs in with them."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AclOperation, ResourceType
from raw_client import RawClient
from raw_login import authenticate, log_in, scram, shake
from secured import Secured

from headrace.testing.local_broker import LocalBroker
from headrace.wire.api import ApiKey
from headrace.wire.messages.create_acls import AclCreation, CreateAclsRequest
from headrace.wire.messages.create_delegation_token import CreatableRenewer, CreateDelegationTokenRequest
from headrace.wire.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from headrace.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from headrace.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from headrace.wire.messages.renew_delegation_token import RenewDelegationTokenRequest

pytestmark = pytest.mark.client

WORD = "a word"
HOUR_MS = 3_600_000
DISABLED, NOT_FOUND, MISMATCH, NOT_ALLOWED, FORBIDDEN, EXPIRED, NO_USER = range(61, 68)


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    key: Path = tmp_path_factory.mktemp("keys") / "secrets.key"
    key.write_text("ab" * 32 + "\n")
    key.chmod(0o600)
    with LocalBroker(secrets_key_file=str(key)) as running:
        yield running


@pytest.fixture(scope="module")
def secured(local: LocalBroker) -> Secured:
    return Secured(local)  # type: ignore[arg-type]


def client_of(secured: Secured, user: str) -> RawClient:
    client = RawClient(secured.broker.kafka_port)
    log_in(client, user, WORD)
    return client


def create(
    client: RawClient, owner: str | None = None, renewers: tuple[str, ...] = (), lasts_ms: int = -1
) -> Any:
    return client.call(
        ApiKey.CREATE_DELEGATION_TOKEN,
        3,
        CreateDelegationTokenRequest(
            "User" if owner else None, owner, [CreatableRenewer("User", name) for name in renewers], lasts_ms
        ),
    )


def renew(client: RawClient, hmac: bytes, period_ms: int = -1) -> Any:
    return client.call(ApiKey.RENEW_DELEGATION_TOKEN, 2, RenewDelegationTokenRequest(hmac, period_ms))


def expire(client: RawClient, hmac: bytes, period_ms: int = -1) -> Any:
    return client.call(ApiKey.EXPIRE_DELEGATION_TOKEN, 2, ExpireDelegationTokenRequest(hmac, period_ms))


def describe(client: RawClient, *owners: str) -> Any:
    asked = [DescribeDelegationTokenOwner("User", name) for name in owners] or None
    return client.call(ApiKey.DESCRIBE_DELEGATION_TOKEN, 3, DescribeDelegationTokenRequest(asked))


def with_token(secured: Secured, token: Any, extension: str = ",tokenauth=true") -> RawClient:
    """Logged in as Java's ScramLoginModule does with `tokenauth=true`."""
    client = RawClient(secured.broker.kafka_port)
    assert shake(client).error_code == 0

    def say(message: bytes) -> bytes:
        answer = authenticate(client, message)
        assert answer.error_code == 0, answer
        return bytes(answer.auth_bytes)

    password = base64.b64encode(bytes(token.hmac)).decode()
    assert scram(say, token.token_id, password, extension).startswith(b"v=")
    return client


def sees(client: RawClient, topic: str) -> bool:
    rows = client.call(ApiKey.METADATA, 9, MetadataRequest([MetadataRequestTopic(name=topic)])).topics
    return bool(rows[0].error_code == 0)


def allow_user(secured: Secured, who: str, operation: int, owner: str) -> None:
    """On a user: librdkafka has no word for that resource."""
    admin = RawClient(secured.broker.kafka_port)
    log_in(admin, "admin", "the admin's own")
    entry = AclCreation(7, f"User:{owner}", 3, f"User:{who}", "*", operation, 3)
    assert admin.call(ApiKey.CREATE_ACLS, 3, CreateAclsRequest([entry])).results[0].error_code == 0


def test_a43_a_token_logs_in_as_its_owner_until_it_ends_and_makes_no_other(
    secured: Secured, topic: str
) -> None:
    user = secured.user()
    secured.topic(topic)
    secured.allow(user, AclOperation.DESCRIBE, ResourceType.TOPIC, topic)
    client = client_of(secured, user)
    token = create(client)
    assert (token.error_code, token.principal_name, token.token_requester_principal_name) == (0, user, user)
    assert token.expiry_timestamp_ms - token.issue_timestamp_ms == 24 * HOUR_MS
    assert token.max_timestamp_ms - token.issue_timestamp_ms == 7 * 24 * HOUR_MS
    job = with_token(secured, token)
    assert sees(job, topic)
    assert create(job).error_code == NOT_ALLOWED == describe(job).error_code
    with pytest.raises(AssertionError, match="error_code=58"):
        with_token(secured, token, "")  # its id is no user's name
    wrong = type(token)(token_id=token.token_id, hmac=bytes(64))
    with pytest.raises(AssertionError, match="error_code=58"):
        with_token(secured, wrong)
    shown = describe(client).tokens
    assert [(each.token_id, bytes(each.hmac)) for each in shown] == [(token.token_id, bytes(token.hmac))]
    assert expire(client, token.hmac).error_code == 0
    assert job.is_closed_by_broker(), "what was opened with it ends with it"
    with pytest.raises(AssertionError, match="error_code=58"):
        with_token(secured, token)
    assert describe(client).tokens == []
    assert renew(client, token.hmac).error_code == NOT_FOUND


def test_a43_it_ends_by_itself_unless_it_is_renewed_and_never_after_its_longest(
    secured: Secured, local: LocalBroker, topic: str
) -> None:
    user, renewer, stranger = (secured.user() for _ in range(3))
    secured.topic(topic)
    secured.allow(user, AclOperation.DESCRIBE, ResourceType.TOPIC, topic)
    token = create(client_of(secured, user), renewers=(renewer,), lasts_ms=30 * HOUR_MS)
    assert renew(client_of(secured, stranger), token.hmac).error_code == MISMATCH
    local.clock.advance(hours=20)
    renewed = renew(client_of(secured, renewer), token.hmac)
    assert (renewed.error_code, renewed.expiry_timestamp_ms) == (0, token.max_timestamp_ms)
    local.clock.advance(minutes=9 * 60 + 55)
    job = with_token(secured, token)
    assert sees(job, topic)
    local.clock.advance(minutes=6)
    job.send(ApiKey.METADATA, 9, MetadataRequest([]))
    assert job.is_closed_by_broker(), "the login ends with the token (KIP-368)"
    assert renew(client_of(secured, user), token.hmac).error_code == EXPIRED
    with pytest.raises(AssertionError, match="error_code=58"):
        with_token(secured, token)


def test_a43_for_somebody_else_it_needs_a_right_on_that_user(secured: Secured) -> None:
    owner, proxy = secured.user(), secured.user()
    client = client_of(secured, proxy)
    assert create(client, owner).error_code == FORBIDDEN
    allow_user(secured, proxy, 13, owner)  # CreateTokens
    token = create(client, owner)
    assert (token.error_code, token.principal_name, token.token_requester_principal_name) == (0, owner, proxy)
    looker = secured.user()
    assert describe(client_of(secured, looker), owner).tokens == []
    allow_user(secured, looker, 14, owner)  # DescribeTokens
    assert [each.token_id for each in describe(client_of(secured, looker), owner).tokens] == [token.token_id]
    job = with_token(secured, token)
    secured.ask("DELETE", f"/users/{owner}")
    assert job.is_closed_by_broker()
    with pytest.raises(AssertionError, match="error_code=58"):
        with_token(secured, token)


def test_a43_who_is_nobody_or_a_broker_without_a_sealing_key_gets_none(secured: Secured) -> None:
    client = client_of(secured, secured.user())
    request = CreateDelegationTokenRequest(None, None, [CreatableRenewer("Group", "x")], -1)
    assert client.call(ApiKey.CREATE_DELEGATION_TOKEN, 3, request).error_code == NO_USER
    with LocalBroker() as plain:
        assert create(RawClient(plain.kafka_port)).error_code == NOT_ALLOWED
        other = Secured(plain)  # type: ignore[arg-type]
        assert create(client_of(other, other.user())).error_code == DISABLED

"""Standard Webhooks, against the library that receivers use."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
import standardwebhooks
from hypothesis import given
from hypothesis import strategies as st

from headrace.push.signature import SigningSecret, signed_headers
from headrace.push.spec import WebhookSecrets

KEY = SigningSecret(bytes(range(32)))
OTHER = SigningSecret(bytes(range(1, 33)))


@given(st.dictionaries(st.text(), st.integers()), st.uuids())
def test_the_receivers_library_accepts_what_we_sign(document: dict[str, int], message_id: object) -> None:
    body = json.dumps(document)
    now_s = int(datetime.now(UTC).timestamp())
    headers = signed_headers([OTHER, KEY], str(message_id), now_s, body.encode())
    for secret in (KEY, OTHER):
        assert standardwebhooks.Webhook(secret.reveal()).verify(body, headers) == document
    with pytest.raises(standardwebhooks.WebhookVerificationError):
        standardwebhooks.Webhook(SigningSecret(b"x" * 32).reveal()).verify(body, headers)


@pytest.mark.parametrize(
    "text",
    ["", "secret", "whsec_", "whsec_!!!!", "whsec_c2hvcnQ=", "WHSEC_" + "A" * 44, "whsec_" + "A" * 200],
)
def test_bad_secrets_are_refused_without_repeating_them(text: str) -> None:
    with pytest.raises(ValueError) as problem:
        SigningSecret.parse(text)
    assert len(text) < 8 or text not in str(problem.value)


def test_x25_no_repr_shows_a_secret() -> None:
    held = WebhookSecrets(
        id="w", current=KEY.reveal(), previous=OTHER.reveal(), previous_until_ms=10, token="t0ken"
    )
    for shown in (repr(KEY), str(KEY), repr(held), f"{held}", repr([held, KEY])):
        assert "whsec" not in shown and "t0ken" not in shown and KEY.reveal()[6:20] not in shown


def test_two_secrets_sign_while_one_replaces_the_other() -> None:
    held = WebhookSecrets(id="w", current=KEY.reveal(), previous=OTHER.reveal(), previous_until_ms=1_000)
    assert held.signing(999) == (KEY, OTHER)
    assert held.signing(1_000) == (KEY,)

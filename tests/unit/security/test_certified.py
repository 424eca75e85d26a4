"""A11, X3: which user a certificate is of; odd names are nobody's."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.core.errors import HeadraceError
from headrace.security.certified import parse_rules, user_of

RULES = parse_rules(
    "URI:headrace://cluster/user/* -> $1\nDNS:*.clients.acme -> svc-$1; CN=*,OU=Payments,** -> $1/L; CN=*,O=Big -> $1/U"
)


def certificate(*subject: tuple[str, str], names: tuple[tuple[str, str], ...] = ()) -> dict[str, Any]:
    """As Python's ssl shows one: the subject from the country down, each part a tuple of pairs."""
    return {"subject": tuple(((kind, value),) for kind, value in reversed(subject)), "subjectAltName": names}


CN, OU, O = "commonName", "organizationalUnitName", "organizationName"  # noqa: E741


@pytest.mark.parametrize(
    ("shown", "user"),
    [
        (certificate((CN, "x"), names=(("URI", "headrace://cluster/user/alice"),)), "alice"),
        (certificate((CN, "x"), names=(("DNS", "web.clients.acme"), ("URI", "headrace://cluster/user/bob"))), "bob"),
        (certificate((CN, "x"), names=(("DNS", "web.clients.acme"),)), "svc-web"),
        (certificate((CN, "x"), names=(("DNS", "a.web.clients.acme"),)), None),
        (certificate((CN, "x"), names=(("URI", "headrace://cluster/user/a/b"),)), None),
        (certificate((CN, "Carol.Doe"), (OU, "Payments"), (O, "Acme")), "carol.doe"),
        (certificate((CN, "dan"), (O, "Big")), "DAN"),
        (certificate((CN, "dan"), (O, "Bigger")), None),
        (certificate((CN, "dan,OU=Payments"), (O, "Acme")), None),
        (certificate((CN, "dan\\"), (O, "Big")), None),
        (certificate((CN, ""), (O, "Big")), None),
        (certificate((CN, "ad\0min"), (O, "Big")), None),
        (certificate((CN, "ad\nmin"), (O, "Big")), None),
        (certificate((CN, "ANONYMOUS"), (O, "Big")), None),
        (certificate((CN, "Broker:1"), (O, "Big")), None),
        (certificate((CN, "\N{CYRILLIC SMALL LETTER A}dmin\N{ZERO WIDTH SPACE}"), (O, "Big")), None),
        (certificate((CN, "x" * 300), (O, "Big")), None),
        (certificate((CN, "x" * 100_000), (O, "Big")), None),
        ({}, None),
    ],
)  # fmt: skip
def test_a11_the_first_rule_that_fits_names_the_user(shown: dict[str, Any], user: str | None) -> None:
    assert user_of(RULES, shown) == user


@pytest.mark.parametrize(
    "text", ["CN=*", "-> x", "CN=* ->", "CN=*,** -> $3", "CN=**,O=** -> $1", "CN=*** -> $1", "CN=x -> $1"]
)
def test_a11_rules_that_mean_nothing_are_refused_with_a_hint(text: str) -> None:
    with pytest.raises(HeadraceError) as refused:
        parse_rules(text)
    assert "docs/security.md" in refused.value.hint

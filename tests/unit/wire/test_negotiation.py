"""KIP-511: ApiVersions before versions are agreed. The frames themselves are in tests/unit/kafka/test_dispatch.py."""

from __future__ import annotations

from headrace.wire.messages.api_versions import SupportedFeatureKey
from headrace.wire.negotiation import is_software_name, supported_features


def test_a_lowest_level_of_0_is_told_from_v4_on() -> None:
    """F28, KAFKA-17011."""
    levels = {"group.version": 1, "transaction.version": 2, "some.version": 0}
    assert supported_features(levels, 4) == [
        SupportedFeatureKey("group.version", 0, 1),
        SupportedFeatureKey("transaction.version", 0, 2),
        SupportedFeatureKey("some.version", 0, 0),
    ]
    assert supported_features(levels, 3) == [
        SupportedFeatureKey("group.version", 1, 1),
        SupportedFeatureKey("transaction.version", 1, 2),
    ]


def test_software_names() -> None:
    assert all(map(is_software_name, ("a", "librdkafka", "2.16.1", "apache-kafka-java", "0")))
    assert not any(map(is_software_name, ("", "-a", "a-", "a b", "a\n", "é", ".")))

"""KIP-511: ApiVersions before versions are agreed."""

from __future__ import annotations

import pytest

from headrace.core.errors import ErrorKind
from headrace.wire.api import ApiKey
from headrace.wire.codec import decode
from headrace.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from headrace.wire.negotiation import encode_api_versions_response, is_answerable, is_software_name

KEYS = (ApiKey.METADATA, ApiKey.API_VERSIONS)
LISTED = [ApiVersion(3, 0, 13), ApiVersion(18, 0, 4)]


def answer(version: int, read_as: int, **options: object) -> ApiVersionsResponse:
    frame = encode_api_versions_response(version, 7, KEYS, **options)  # type: ignore[arg-type]
    assert frame[:8] == (len(frame) - 4).to_bytes(4, "big") + b"\x00\x00\x00\x07"
    return decode(ApiVersionsResponse, read_as, frame, 8)


@pytest.mark.parametrize("version", range(5))
def test_a_known_version_is_answered_in_kind(version: int) -> None:
    assert answer(version, version) == ApiVersionsResponse(0, LISTED)


@pytest.mark.parametrize("version", [-1, 5, 99, 32767])
def test_an_unknown_version_is_answered_at_v0_and_lists_the_keys(version: int) -> None:
    assert not is_answerable(version)
    assert answer(version, 0) == ApiVersionsResponse(ErrorKind.UNSUPPORTED_VERSION, LISTED)


def test_features_travel_in_tags_and_level_0_only_from_v4() -> None:
    features = {
        "supported_features": [SupportedFeatureKey("group.version", 0, 1)],
        "finalized_features": [FinalizedFeatureKey("group.version", 1, 1)],
        "finalized_features_epoch": 3,
    }
    assert answer(4, 4, **features).supported_features == [SupportedFeatureKey("group.version", 0, 1)]
    old = answer(3, 3, **features)
    assert old.supported_features == [SupportedFeatureKey("group.version", 1, 1)]
    assert (old.finalized_features[0].max_version_level, old.finalized_features_epoch) == (1, 3)


def test_an_error_of_the_callers_is_told() -> None:
    assert answer(3, 3, error=ErrorKind.INVALID_REQUEST).error_code == 42


def test_software_names() -> None:
    assert all(map(is_software_name, ("a", "librdkafka", "2.16.1", "apache-kafka-java", "0")))
    assert not any(map(is_software_name, ("", "-a", "a-", "a b", "a\n", "é", ".")))

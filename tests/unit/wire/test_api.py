"""The table of APIs against Kafka's own numbers, as kio carries them."""

from __future__ import annotations

import importlib
import re
from typing import Any

import pytest

from headrace.wire.api import API, ApiKey, ApiSpec, request_header_version, response_header_version
from headrace.wire.codec import versions
from headrace.wire.schema import MESSAGES

# kafka.md section 2: what we offer.
OFFERED = {
    18: (0, 4), 3: (0, 13), 0: (0, 11), 1: (4, 17), 2: (1, 10), 10: (0, 6), 8: (2, 9), 9: (1, 9), 11: (0, 9), 12: (0, 4),
    13: (0, 5), 14: (0, 5), 15: (0, 6), 16: (0, 5), 19: (2, 7), 20: (1, 6), 37: (0, 3), 21: (0, 2), 22: (0, 5), 23: (2, 4),
    32: (1, 4), 33: (0, 2), 44: (0, 1), 42: (0, 2), 47: (0, 0), 60: (0, 2), 24: (0, 3), 25: (0, 4), 26: (0, 4), 28: (0, 4),
    17: (0, 1), 36: (0, 2), 68: (0, 1), 69: (0, 1), 29: (1, 3), 30: (1, 3), 31: (1, 3), 35: (1, 4), 50: (0, 0), 51: (0, 0),
    61: (0, 0), 65: (0, 0), 66: (0, 1), 75: (0, 0), 43: (0, 2), 46: (0, 0), 27: (1, 2), 76: (1, 1), 77: (1, 1), 78: (1, 2),
    79: (1, 2), 90: (0, 1), 91: (0, 0), 92: (0, 0),
}  # fmt: skip


@pytest.mark.parametrize("key", OFFERED)
def test_offered_versions(key: int) -> None:
    assert (API[key].min_version, API[key].max_version) == OFFERED[key]


@pytest.mark.parametrize("spec", API.values(), ids=lambda spec: spec.name)
def test_the_codec_speaks_all_that_is_offered(spec: ApiSpec) -> None:
    for message in (spec.request, spec.response):
        served = range(max(spec.min_version, 3 if spec.key == ApiKey.PRODUCE else 0), spec.max_version + 1)
        assert set(served) <= set(versions(message))
        assert MESSAGES[message].key == spec.key
        assert MESSAGES[message].flexible == spec.flexible_from


def theirs(spec: ApiSpec, version: int, kind: str) -> Any:
    package = re.sub(r"(?<!^)(?=[A-Z])", "_", spec.name).lower()
    module = importlib.import_module(f"kio.schema.{package}.v{version}.{kind}")
    return getattr(module, f"{spec.name}{kind.capitalize()}")


@pytest.mark.parametrize("spec", API.values(), ids=lambda spec: spec.name)
def test_keys_and_header_versions(spec: ApiSpec) -> None:
    for version in versions(spec.request):
        request, response = theirs(spec, version, "request"), theirs(spec, version, "response")
        assert request.__api_key__ == spec.key
        assert request_header_version(spec.key, version) == request.__header_schema__.__version__
        assert response_header_version(spec.key, version) == response.__header_schema__.__version__


def test_an_api_versions_answer_has_header_v0_in_every_version() -> None:
    """KIP-511: the client can not know yet what we speak."""
    assert {response_header_version(ApiKey.API_VERSIONS, version) for version in range(100)} == {0}
    assert request_header_version(ApiKey.API_VERSIONS, 3) == 2


def test_an_unknown_key_has_the_oldest_headers() -> None:
    assert (request_header_version(9999, 3), response_header_version(9999, 3)) == (1, 0)

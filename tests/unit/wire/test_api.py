"""The table of APIs against Kafka's own numbers, as kio carries them."""

from __future__ import annotations

import importlib
import re
from typing import Any

import pytest

from headrace.wire.api import API, ApiKey, ApiSpec, request_header_version, response_header_version
from headrace.wire.codec import versions
from headrace.wire.schema import MESSAGES


@pytest.mark.parametrize("spec", API.values(), ids=lambda spec: spec.name)
def test_request_and_response_are_a_pair(spec: ApiSpec) -> None:
    for message in (spec.request, spec.response):
        assert versions(message) == versions(spec.request)
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

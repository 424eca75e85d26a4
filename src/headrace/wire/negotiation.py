"""Codec: the first exchange on a connection, which has to work before versions are agreed (KIP-511).

Invariant: whatever version of ApiVersions a client asks with, it gets an answer it can read: at its own version when we
speak it, else at v0 with UNSUPPORTED_VERSION and the list all the same, so that it can ask again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from headrace.core.errors import ErrorKind
from headrace.wire.api import API, ApiKey
from headrace.wire.codec import encode
from headrace.wire.framing import encode_response
from headrace.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def is_answerable(version: int) -> bool:
    spec = API[ApiKey.API_VERSIONS]
    return spec.min_version <= version <= spec.max_version


def is_software_name(text: str) -> bool:
    """Whether a client may call itself this (name or version); else the answer is INVALID_REQUEST."""
    return _SOFTWARE.fullmatch(text) is not None


def offered_versions(keys: Iterable[int]) -> list[ApiVersion]:
    return [ApiVersion(key, API[key].min_version, API[key].max_version) for key in sorted(keys)]


def encode_api_versions_response(
    version: int,
    correlation_id: int,
    keys: Iterable[int],
    *,
    error: ErrorKind = ErrorKind.NONE,
    supported_features: Sequence[SupportedFeatureKey] = (),
    finalized_features: Sequence[FinalizedFeatureKey] = (),
    finalized_features_epoch: int = -1,
) -> bytes:
    """The whole frame, also for a `version` we do not know."""
    if not is_answerable(version):
        version, error = 0, ErrorKind.UNSUPPORTED_VERSION
    response = ApiVersionsResponse(
        error_code=error.kafka_code,
        api_keys=offered_versions(keys),
        supported_features=[
            # Before v4 clients choke on a lowest level of 0 (KAFKA-17011).
            SupportedFeatureKey(f.name, max(f.min_version, 0 if version >= 4 else 1), f.max_version)
            for f in supported_features
        ],
        finalized_features=list(finalized_features),
        finalized_features_epoch=finalized_features_epoch,
    )
    return encode_response(ApiKey.API_VERSIONS, version, correlation_id, encode(response, version))

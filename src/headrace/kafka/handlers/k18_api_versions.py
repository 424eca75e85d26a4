"""Door: ApiVersions (18). What we serve and in which versions.

v0-4. The answer to an unknown version is v0 with UNSUPPORTED_VERSION and the list all the same (KIP-511), which
dispatch.py asks for. v3+: client software name and version are checked. Feature levels are tagged fields (v3+).
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.core.errors import ErrorKind
from headrace.kafka.call import Call, OfferedApi
from headrace.kafka.features import FEATURE_LEVELS
from headrace.security.rights import BEFORE_LOGIN
from headrace.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
)
from headrace.wire.negotiation import is_software_name, supported_features

KEY = 18
VERSIONS = (0, 4)
RIGHTS = BEFORE_LOGIN


def listing(
    apis: Sequence[OfferedApi], version: int, error: ErrorKind = ErrorKind.NONE
) -> ApiVersionsResponse:
    response = ApiVersionsResponse(
        error_code=error.kafka_code,
        api_keys=[ApiVersion(key, low, high) for key, low, high in apis],
    )
    if version >= 3:
        levels = FEATURE_LEVELS
        response.supported_features = supported_features(levels, version)
        response.finalized_features = [
            FinalizedFeatureKey(name, level, level) for name, level in levels.items()
        ]
        response.finalized_features_epoch = 1
    return response


def handle(call: Call[ApiVersionsRequest]) -> ApiVersionsResponse:
    request = call.request
    if call.version >= 3 and not (
        is_software_name(request.client_software_name) and is_software_name(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=ErrorKind.INVALID_REQUEST)
    return listing(call.apis, call.version)

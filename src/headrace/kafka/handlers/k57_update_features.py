"""Door: UpdateFeatures (57): feature levels come with the release, so only the level there is can be asked for (F37).

v0-1 answer each feature, v2 the whole request. All or nothing: with one refusal nothing is said to have changed.
"""

from __future__ import annotations

from headrace.core.errors import ErrorKind
from headrace.kafka.call import Call
from headrace.kafka.features import FEATURE_LEVELS
from headrace.security.rights import CLUSTER, alter, needs
from headrace.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

KEY = 57
VERSIONS = (0, 2)
RIGHTS = needs(alter(CLUSTER))


def handle(call: Call[UpdateFeaturesRequest]) -> UpdateFeaturesResponse:
    request = call.request
    if not request.feature_updates:
        return _failed(ErrorKind.INVALID_REQUEST, "no feature is named")
    problems = {update.feature: _problem(update, FEATURE_LEVELS) for update in request.feature_updates}
    if call.version >= 2:
        first = next((text for text in problems.values() if text is not None), None)
        return (
            UpdateFeaturesResponse(error_message=None)
            if first is None
            else _failed(ErrorKind.INVALID_UPDATE_VERSION, first)
        )
    return UpdateFeaturesResponse(
        error_message=None,
        results=[
            UpdatableFeatureResult(
                name, ErrorKind.NONE if text is None else ErrorKind.INVALID_UPDATE_VERSION, text
            )
            for name, text in problems.items()
        ],
    )


def _problem(update: FeatureUpdateKey, levels: dict[str, int]) -> str | None:
    level = levels.get(update.feature)
    if level is None:
        return f"there is no feature {update.feature!r}; there are {', '.join(sorted(levels))}"
    if update.max_version_level != level:
        return (
            f"{update.feature} is at level {level}, which comes with this release and can not be changed to "
            f"{update.max_version_level}"
        )
    return None


def _failed(error: ErrorKind, message: str) -> UpdateFeaturesResponse:
    return UpdateFeaturesResponse(error_code=error.kafka_code, error_message=message)

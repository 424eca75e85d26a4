"""Codec: the first exchange on a connection, which has to work before versions are agreed (KIP-511)."""

from __future__ import annotations

import re
from collections.abc import Mapping

from headrace.wire.messages.api_versions import SupportedFeatureKey

_SOFTWARE = re.compile(r"[a-zA-Z0-9]++(?:[\-.]++[a-zA-Z0-9]++)*+")


def is_software_name(text: str) -> bool:
    """Whether a client may call itself this (name or version); else the answer is INVALID_REQUEST."""
    return _SOFTWARE.fullmatch(text) is not None


def supported_features(levels: Mapping[str, int], version: int) -> list[SupportedFeatureKey]:
    """Each feature from "off" to the level we have.

    Java clients before 3.9 ask with version 3 and close the connection over a lowest level of 0 (KAFKA-17011), so they
    are told 1.
    """
    off = 0 if version >= 4 else 1
    return [SupportedFeatureKey(name, off, level) for name, level in levels.items() if level >= off]

"""What classic consumers put into JoinGroup: the other side of groups/subscription.py."""

from __future__ import annotations

from struct import Struct

from headrace.groups.subscription import MemberSubscription, encode_assignment

_INT16 = Struct(">h")
_INT32 = Struct(">i")


def encode_subscription(subscription: MemberSubscription) -> bytes:
    parts = [_INT16.pack(subscription.version), _INT32.pack(len(subscription.topics))]
    parts.extend(_string(topic) for topic in subscription.topics)
    parts.append(_INT32.pack(-1))
    if subscription.version >= 1:
        # As an assignment, without the version in front and the user data behind.
        parts.append(encode_assignment(0, subscription.owned)[2:-4])
    if subscription.version >= 2:
        parts.append(_INT32.pack(subscription.generation))
    if subscription.version >= 3:
        parts.append(_INT16.pack(-1) if subscription.rack is None else _string(subscription.rack))
    return b"".join(parts)


def _string(text: str) -> bytes:
    raw = text.encode()
    return _INT16.pack(len(raw)) + raw

"""Codec: users, rights and the mode of security."""

from __future__ import annotations

import msgspec

from headrace.http.openapi import Operation, Operations
from headrace.http.rest.credentials import NewKey, NewToken
from headrace.http.rest.operations.queues import CHANGE_PROBLEMS
from headrace.http.rest.security import (
    ModeChange,
    NewPassword,
    NewUser,
    Question,
    SuperUsers,
    UserChange,
)


class SecurityStatus(msgspec.Struct, kw_only=True):
    mode: str
    since_ms: int
    by: str
    users: int
    rights: int
    super_users: list[str]
    broker: int
    revision: int
    unreadable: list[str]
    """Keys of the coordinator that are not what they should be; they give nobody anything."""
    denied: int
    failed_logins: int


class ShownUser(msgspec.Struct, kw_only=True):
    name: str
    enabled: bool
    created_ms: int
    mechanisms: list[str]
    super: bool


class UserPage(msgspec.Struct, kw_only=True):
    items: list[ShownUser]
    next_cursor: str | None


class ShownToken(msgspec.Struct, kw_only=True):
    id: str
    owner: str
    name: str
    created_ms: int
    expires_ms: int


class MadeToken(ShownToken, kw_only=True):
    token: str


class TokenPage(msgspec.Struct, kw_only=True):
    items: list[ShownToken]
    next_cursor: str | None


class ShownKey(msgspec.Struct, kw_only=True):
    id: str
    owner: str
    name: str
    created_ms: int


class MadeKey(ShownKey, kw_only=True):
    secret: str


class KeyPage(msgspec.Struct, kw_only=True):
    items: list[ShownKey]
    next_cursor: str | None


class Denial(msgspec.Struct, kw_only=True):
    principal: str
    operation: str
    resource: str
    name: str
    count: int
    last_ms: int
    host: str


class Nameless(msgspec.Struct, kw_only=True):
    host: str
    client: str
    count: int
    last_ms: int


class DenialList(msgspec.Struct, kw_only=True):
    broker: int
    denied: list[Denial]
    nameless: list[Nameless]


class Grant(msgspec.Struct, kw_only=True):
    principal: str
    operation: str
    resource: str
    name: str
    pattern: str


class Explanation(msgspec.Struct, kw_only=True):
    allowed: bool
    rule: str
    granted_by: list[Grant]


_BASE = "/api/v1/security"

OPERATIONS: Operations = {
    ("GET", _BASE): Operation("The mode, and how much there is", "security", {200: SecurityStatus}, problems=()),
    ("PUT", f"{_BASE}/mode"): Operation(
        "Set the mode", "security", {200: SecurityStatus},
        "open, observe or enforced; in effect at once. Enforcing refuses while somebody would be locked out by it; `force` does it all the same.",
        body=(ModeChange,), problems=CHANGE_PROBLEMS,
    ),
    ("PUT", f"{_BASE}/super-users"): Operation(
        "Say who is bound by no right", "security", {200: SecurityStatus}, body=(SuperUsers,), problems=CHANGE_PROBLEMS
    ),
    ("GET", f"{_BASE}/users"): Operation("List users", "security", {200: UserPage}, problems=()),
    ("POST", f"{_BASE}/users"): Operation(
        "Make a user", "security", {201: ShownUser}, "With what SCRAM keeps of the password, not the password.",
        body=(NewUser,), problems=CHANGE_PROBLEMS,
    ),
    ("PUT", f"{_BASE}/users/{{user}}/password"): Operation(
        "Give a user another password", "security", {200: ShownUser}, body=(NewPassword,), problems=CHANGE_PROBLEMS
    ),
    ("PATCH", f"{_BASE}/users/{{user}}"): Operation(
        "Shut a user out, or let it in again", "security", {200: ShownUser}, body=(UserChange,), problems=CHANGE_PROBLEMS
    ),
    ("DELETE", f"{_BASE}/users/{{user}}"): Operation("Delete a user", "security", {204: None}, problems=CHANGE_PROBLEMS),
    ("GET", f"{_BASE}/tokens"): Operation(
        "List tokens", "security", {200: TokenPage}, "One's own; an administrator sees all. Never the tokens themselves.", problems=()
    ),
    ("POST", f"{_BASE}/tokens"): Operation(
        "Make a token", "security", {201: MadeToken}, "For oneself without any right. The token is in this answer and nowhere else.",
        body=(NewToken,), problems=CHANGE_PROBLEMS,
    ),
    ("DELETE", f"{_BASE}/tokens/{{token}}"): Operation("Delete a token", "security", {204: None}, "By its id.", problems=CHANGE_PROBLEMS),
    ("GET", f"{_BASE}/keys"): Operation(
        "List access keys", "security", {200: KeyPage}, "One's own; an administrator sees all. Never their secrets.", problems=()
    ),
    ("POST", f"{_BASE}/keys"): Operation(
        "Make an access key for SQS", "security", {201: MadeKey}, "For oneself without any right. The secret is in this answer and nowhere else.",
        body=(NewKey,), problems=CHANGE_PROBLEMS,
    ),
    ("DELETE", f"{_BASE}/keys/{{key}}"): Operation("Delete an access key", "security", {204: None}, problems=CHANGE_PROBLEMS),
    ("GET", f"{_BASE}/denials"): Operation(
        "What was denied at this broker in the last day, or would be", "security", {200: DenialList}, problems=()
    ),
    ("POST", f"{_BASE}/explain"): Operation(
        "Whether somebody may do something, and why", "security", {200: Explanation}, body=(Question,), problems=(400,)
    ),
}  # fmt: skip

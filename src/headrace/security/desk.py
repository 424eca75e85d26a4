"""Port: what the doors are given of security, as a record. Built once, in `node/security.py`."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.security.admin import SecurityAdmin
from headrace.security.delegation import Delegation
from headrace.security.denials import Denials
from headrace.security.guard import Guard
from headrace.security.image import SecurityImage
from headrace.security.key_ring import KeyRing
from headrace.security.logins import Logins
from headrace.security.standing import StandingOrders


@dataclass(frozen=True, slots=True)
class Security:
    image: SecurityImage
    admin: SecurityAdmin
    logins: Logins
    guard: Guard
    denials: Denials
    keys: KeyRing
    standing: StandingOrders
    delegation: Delegation

"""Codec: the OpenAPI document without a server: the doors are put up for nobody, and their routes written down."""

from __future__ import annotations

from typing import Any

from headrace.http.contract import Document
from headrace.http.health import HealthDoor
from headrace.http.metrics import Collectors, MetricsDoor
from headrace.http.openapi import document
from headrace.http.rest.about import AboutDoor
from headrace.http.rest.acls import AclDoor
from headrace.http.rest.denials import DenialDoor
from headrace.http.rest.doors import mount_rest
from headrace.http.rest.queue_explaining import QueueExplainDoor
from headrace.http.rest.sealing import SealingDoor
from headrace.http.rest.security import SecurityDoor
from headrace.http.rest.sessions import SessionDoor
from headrace.http.rest.tenants import TenantDoor
from headrace.http.rest.webhooks import WebhookDoor
from headrace.http.router import Router


class _Nobody:
    """Stands for a broker: doors look things up in it when they are made, and nobody ever calls them."""

    def __getattr__(self, name: str) -> _Nobody:
        return _Nobody()


def public_router(version: str) -> Router:
    router = Router()
    nobody: Any = _Nobody()
    HealthDoor().mount(router)
    MetricsDoor(Collectors()).mount(router)
    mount_rest(router, nobody, nobody, nobody, b"", version, nobody, nobody)
    AboutDoor(nobody, nobody, nobody, version, console=False).mount(router)
    SessionDoor(nobody, nobody, nobody).mount(router)
    SecurityDoor(nobody, 0, DenialDoor(nobody, nobody, nobody, nobody)).mount(router)
    SealingDoor(nobody, nobody, nobody, nobody, nobody).mount(router)
    AclDoor(nobody).mount(router)
    QueueExplainDoor(nobody, nobody, nobody, nobody, nobody, nobody).mount(router)
    TenantDoor(nobody, nobody, nobody, nobody).mount(router)
    WebhookDoor(nobody, nobody, nobody, nobody, nobody, nobody, nobody, nobody).mount(router)
    return router


def api_document(version: str) -> Document:
    return document(public_router(version).routes(), version)

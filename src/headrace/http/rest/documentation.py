"""Door: the OpenAPI document of this server, made from its routes.

GET /openapi.json
"""

from __future__ import annotations

import msgspec

from headrace.http.contract import Contract, Document
from headrace.http.declared import Door, route
from headrace.http.messages import Request, Response
from headrace.http.openapi import document
from headrace.http.router import Router
from headrace.security.rights import BEFORE_LOGIN

DOCUMENT_TYPE = "application/vnd.oai.openapi+json;version=3.1"


class DocumentationDoor(Door):
    def __init__(self, router: Router, version: str) -> None:
        self._router = router
        self._version = version
        self._encoded = b""

    @route(
        "GET",
        "/openapi.json",
        BEFORE_LOGIN,
        Contract("This document", "service", {200: Document}, problems=()),
    )
    def _answer(self, request: Request) -> Response:
        if not self._encoded:
            made = document(self._router.routes(), self._version)
            self._encoded = msgspec.json.format(msgspec.json.encode(made), indent=1)
        content_type = DOCUMENT_TYPE if "oai.openapi" in request.header(b"accept") else "application/json"
        return Response(self._encoded, 200, content_type)

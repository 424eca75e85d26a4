"""A broker in mode enforced with its administrator, for tests of who may what."""

from __future__ import annotations

import base64
import itertools
import json
import secrets
import urllib.error
import urllib.request
from typing import Any

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from sasl_clients import Login, librdkafka

from headrace.cli.user_view import scram_records
from headrace.testing.broker_process import BrokerProcess

ADMIN, PASSWORD = "admin", "the admin's own"
_numbers = itertools.count()


class Secured:
    """A broker in mode enforced, and its administrator."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker
        self.ask(
            "POST", "/users", {"name": ADMIN, "scram": scram_records(PASSWORD, 4096), "super": True}, user=""
        )
        self.set_mode("enforced", user="")
        self.admin = AdminClient(librdkafka(self.login(ADMIN, PASSWORD)))

    def ask(
        self, method: str, path: str, body: Any = None, *, user: str = ADMIN, password: str = PASSWORD
    ) -> Any:
        status, answer = self.http(method, f"/api/v1/security{path}", body, user=user, password=password)
        assert status < 300, answer
        return answer

    def http(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        user: str = "",
        password: str = "",
        token: str = "",
    ) -> tuple[int, Any]:
        request = urllib.request.Request(self.broker.url + path, method=method)
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("content-type", "application/json")
        if token:
            request.add_header("authorization", f"Bearer {token}")
        if user:
            request.add_header(
                "authorization", "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
            )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as problem:
            return problem.code, json.loads(problem.read() or b"null")

    def set_mode(self, mode: str, *, user: str = ADMIN) -> None:
        self.ask("PUT", "/mode", {"mode": mode, "force": True}, user=user)

    def login(self, user: str, password: str, mechanism: str = "SCRAM-SHA-256") -> Login:
        return Login(self.broker.bootstrap, mechanism, user, password)

    def user(self, password: str = "a word") -> str:
        name = f"user-{next(_numbers)}-{secrets.token_hex(2)}"
        self.ask("POST", "/users", {"name": name, "scram": scram_records(password, 4096)})
        return name

    def allow(
        self, user: str, operation: AclOperation, kind: ResourceType, name: str, **more: Any
    ) -> AclBinding:
        acl = AclBinding(
            kind, name, more.get("pattern", ResourcePatternType.LITERAL), f"User:{user}", more.get("host", "*"),
            operation, more.get("permission", AclPermissionType.ALLOW),
        )  # fmt: skip
        for future in self.admin.create_acls([acl]).values():
            future.result(30)
        return acl

    def topic(self, name: str) -> str:
        for future in self.admin.create_topics([NewTopic(name, 1, 1)]).values():
            future.result(30)
        return name

"""Codec: who a pipeline is to a cluster, as a table of its definition: [login]."""

from __future__ import annotations

import msgspec

from headrace.spark.connection import ClusterAccess


class Login(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Who a pipeline is to a cluster. Secrets are in files that only their owner reads, on every host that connects (A28)."""

    user: str = ""
    password_file: str = ""
    token_file: str = ""
    """The same of a token, which needs no user."""
    tls_ca: str = ""
    """Certificates to trust; given, TLS is spoken."""

    def options(self, bootstrap: str) -> dict[str, str]:
        """As options of a source or a sink."""
        named = {
            "user": self.user,
            "passwordFile": self.password_file,
            "tokenFile": self.token_file,
            "tls.ca": self.tls_ca,
        }
        return {"bootstrap": bootstrap, **{name: text for name, text in named.items() if text}}

    def access(self, bootstrap: str, seconds: float = 30.0) -> ClusterAccess:
        return ClusterAccess(
            bootstrap,
            request_seconds=seconds,
            tls=bool(self.tls_ca),
            tls_ca=self.tls_ca or None,
            sasl_user=self.user or None,
            password_file=self.password_file or None,
            token_file=self.token_file or None,
        )

    def problems(self, key: str) -> list[str]:
        if bool(self.user) == bool(self.password_file) and not (self.user and self.token_file):
            return []
        return [f"{key}: log in with user and password_file, or with token_file alone"]


NOBODY = Login()

"""A small issuer of tokens that signs for real: RSA keys, RS256, its keys published over HTTP as JWKS."""

from __future__ import annotations

import base64
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

NAME, AUDIENCE = "https://issuer.example", "headrace"


class TokenIssuer:
    def __init__(self) -> None:
        self._keys: dict[str, rsa.RSAPrivateKey] = {}
        self.rotate("first")
        self.asked = 0
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.asked += 1
                found = {"issuer": issuer.says_it_is, "jwks_uri": issuer.url}
                discovers = self.path == "/.well-known/openid-configuration"
                body = json.dumps(found).encode() if discovers else issuer.jwks()
                self.send_response(200)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.own_name = f"http://127.0.0.1:{self._server.server_port}"
        self.says_it_is = self.own_name
        """What its discovery document says."""
        self.url = f"{self.own_name}/keys"

    @property
    def arguments(self) -> tuple[str, ...]:
        return ("--oidc-issuer", NAME, "--oidc-audience", AUDIENCE, "--oidc-jwks", self.url)

    def rotate(self, kid: str) -> None:
        self._keys = {kid: rsa.generate_private_key(65537, 2048)}

    def jwks(self) -> bytes:
        def number(value: int) -> str:
            return b64(value.to_bytes((value.bit_length() + 7) // 8, "big"))

        keys = []
        for kid, key in self._keys.items():
            public = key.public_key().public_numbers()
            keys.append(
                {"kty": "RSA", "kid": kid, "use": "sig", "n": number(public.n), "e": number(public.e)}
            )
        return json.dumps({"keys": keys}).encode()

    def token(self, name: str, seconds: float = 3600, **more: Any) -> str:
        (kid,) = self._keys
        claims = {"iss": NAME, "aud": AUDIENCE, "sub": name, "exp": time.time() + seconds, **more}
        head = b64(json.dumps({"alg": "RS256", "kid": kid}).encode())
        signed = f"{head}.{b64(json.dumps(claims).encode())}"
        signature = self._keys[kid].sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{signed}.{b64(signature)}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def b64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")

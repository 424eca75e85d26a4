"""Driver: the webhooks of the cluster: kept in the coordinator, changed by compared transactions (R1), read from the image."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from headrace.broker.metadata import Decision, Metadata
from headrace.broker.runtime import Runtime
from headrace.cluster import keys
from headrace.cluster.changes import Change, DeleteKey, PutKey, absent
from headrace.core.errors import ErrorKind, HeadraceError, Unknown
from headrace.push.secret_codec import SecretCodec
from headrace.push.signature import NEW_SECRET_BYTES, SigningSecret
from headrace.push.spec import WebhookSecrets, WebhookSpec, decode_webhook, problem_of
from headrace.security.resealing import Resealed
from headrace.security.sealing import Sealer

MAX_WEBHOOKS = 10_000
TOKEN_BYTES = 24
SPACE = "webhooks"


class WebhookRegistry:
    def __init__(
        self,
        runtime: Runtime,
        metadata: Metadata,
        new_uuid: Callable[[], str],
        sealer: Sealer | None = None,
    ) -> None:
        self._runtime = runtime
        self._codec = SecretCodec(sealer, runtime.random_bytes)
        self._metadata = metadata
        self._new_uuid = new_uuid
        self._image = metadata.image
        self._specs: dict[str, WebhookSpec] = {}
        self._secrets: dict[str, WebhookSecrets] = {}
        self.load()

    def load(self) -> None:
        """At start, and whenever one of them changed."""
        found = {name: decode_webhook(raw) for name, raw in self._image.opaque(SPACE).items()}
        self._specs = {name: spec for name, spec in found.items() if spec is not None and spec.name == name}
        self._secrets = {}
        for key, raw in self._image.opaque("secrets").items():
            name = key.removeprefix("webhook.")
            if name != key and name in self._specs:
                secrets = self._codec.decode(name, raw)
                if secrets is not None and secrets.id == self._specs[name].id:
                    self._secrets[name] = secrets

    def all(self) -> list[WebhookSpec]:
        return [self._specs[name] for name in sorted(self._specs)]

    def find(self, name: str) -> WebhookSpec | None:
        return self._specs.get(name)

    def get(self, name: str) -> WebhookSpec:
        spec = self._specs.get(name)
        if spec is None:
            raise Unknown(
                ErrorKind.NOT_FOUND,
                f'there is no webhook called "{name}"',
                "headrace webhook list shows them",
            )
        return spec

    def secrets_of(self, name: str) -> WebhookSecrets | None:
        return self._secrets.get(name)

    def signing(self, name: str) -> tuple[SigningSecret, ...]:
        secrets = self._secrets.get(name)
        return () if secrets is None else secrets.signing(self._runtime.clock.wall_ms())

    def free_name(self, queue: str) -> str:
        """The queue's own name, or that with a number."""
        plain = queue.lstrip("._-")[:70] or "webhook"
        if plain not in self._specs:
            return plain
        return next(
            name for number in range(2, MAX_WEBHOOKS) if (name := f"{plain}-{number}") not in self._specs
        )

    # -- changes -------------------------------------------------------------------------------------------------------

    async def add(self, spec: WebhookSpec, secret: SigningSecret) -> WebhookSpec:
        _check(spec)
        if len(self._specs) >= MAX_WEBHOOKS:
            raise HeadraceError(ErrorKind.OVER_LIMIT, f"there are {MAX_WEBHOOKS} webhooks already")
        held = WebhookSecrets(
            id=spec.id, current=secret.reveal(), token=self._runtime.random_bytes(TOKEN_BYTES).hex()
        )
        key = keys.opaque(SPACE, spec.name)
        puts = (
            PutKey(key, msgspec.json.encode(spec)),
            PutKey(_secret_key(spec.name), self._codec.encode(spec.name, held)),
        )
        change = Change((absent(key),), puts, f"webhook {spec.name} is added")
        if not (await self._metadata.commit(change)).succeeded:
            raise HeadraceError(ErrorKind.CONFLICT, f'a webhook called "{spec.name}" exists already')
        self.load()
        return self.get(spec.name)

    async def change(self, name: str, **changes: Any) -> WebhookSpec:
        return await self._swap(name, lambda: (self._changed(name, changes), None), "changes")

    def _changed(self, name: str, changes: dict[str, Any]) -> WebhookSpec:
        spec = msgspec.structs.replace(self.get(name), changed_ms=self._runtime.clock.wall_ms(), **changes)
        _check(spec)
        return spec

    async def _swap(
        self, name: str, decide: Callable[[], tuple[WebhookSpec | None, WebhookSecrets | None]], why: str
    ) -> WebhookSpec:
        """Write whichever of the two is not None, as long as nobody else has since they were read."""

        async def decision() -> Decision[WebhookSpec]:
            self.load()
            spec, secrets = decide()
            puts = []
            if spec is not None:
                puts.append(PutKey(keys.opaque(SPACE, name), msgspec.json.encode(spec)))
            if secrets is not None:
                puts.append(PutKey(_secret_key(name), self._codec.encode(name, secrets)))
            unchanged = tuple(self._metadata.unchanged(put.key) for put in puts)
            return Decision(
                (Change(unchanged, tuple(puts), f"webhook {name} {why}"),), spec or self.get(name)
            )

        result = await self._metadata.compare_and_swap(decision, "this webhook")
        self.load()
        return result

    async def disable(self, spec: WebhookSpec, reason: str) -> None:
        """Only if it is still the webhook that was meant."""
        now = self.find(spec.name)
        if now is not None and now.id == spec.id and now.url == spec.url and now.state == "active":
            await self.change(spec.name, state="disabled", reason=reason)

    async def confirm(self, spec: WebhookSpec) -> WebhookSpec:
        now = self.get(spec.name)
        if now.id != spec.id or now.url != spec.url or now.state != "pending":
            return now
        wall_ms = self._runtime.clock.wall_ms()
        return await self.change(spec.name, state="active", reason="", confirmed_ms=wall_ms)

    async def retarget(self, name: str, url: str) -> WebhookSpec:
        """Another endpoint has to confirm, with a token that the old one never saw (X23)."""
        anew = {"url": url, "state": "pending", "reason": "", "confirmed_ms": 0}

        def decide() -> tuple[WebhookSpec, WebhookSecrets]:
            spec, held = self._changed(name, {"id": self._new_uuid(), **anew}), self._secrets.get(name)
            if held is None:
                raise HeadraceError(ErrorKind.CONFLICT, f"the secrets of webhook {name} can't be read here")
            token = self._runtime.random_bytes(TOKEN_BYTES).hex()
            return spec, msgspec.structs.replace(held, id=spec.id, token=token)

        return await self._swap(name, decide, "moves")

    async def rotate(self, name: str, secret: SigningSecret, overlap_ms: int) -> None:
        """From now on both secrets sign, until the older one's time is up."""

        def decide() -> tuple[None, WebhookSecrets]:
            held = self._secrets.get(name)
            return None, WebhookSecrets(
                id=self.get(name).id,
                current=secret.reveal(),
                previous=held.current if held is not None else "",
                previous_until_ms=self._runtime.clock.wall_ms() + overlap_ms,
                token=held.token if held is not None else self._runtime.random_bytes(TOKEN_BYTES).hex(),
            )

        await self._swap(name, decide, "has a new secret")

    async def reseal(self) -> Resealed:
        """What is not sealed with the key that seals now (A31): plain ones, from before there was a key, as well."""
        self.load()
        done, lost = 0, []
        for name in list(self._specs):
            raw = self._image.opaque("secrets").get(f"webhook.{name}")
            if raw is None or self._codec.is_newest(name, raw):
                continue
            if self._secrets.get(name) is None:
                lost.append(f"webhook {name}")
                continue
            try:
                await self._swap(name, lambda name=name: (None, self._secrets.get(name)), "is sealed anew")  # type: ignore[misc]
                done += 1
            except Unknown:
                continue  # it was removed meanwhile
        return Resealed(done, tuple(lost))

    async def remove(self, name: str) -> WebhookSpec:
        spec = self.get(name)
        ops = (DeleteKey(keys.opaque(SPACE, name)), DeleteKey(_secret_key(name)))
        await self._metadata.commit(Change((), ops, f"webhook {name} is removed"))
        self.load()
        return spec

    def new_secret(self) -> SigningSecret:
        return SigningSecret(self._runtime.random_bytes(NEW_SECRET_BYTES))


def _secret_key(name: str) -> str:
    return keys.opaque("secrets", f"webhook.{name}")


def _check(spec: WebhookSpec) -> None:
    """A spec made from parts is checked like one that was read."""
    try:
        msgspec.json.decode(msgspec.json.encode(spec), type=WebhookSpec)
    except msgspec.ValidationError as problem:
        raise HeadraceError(ErrorKind.INVALID_REQUEST, str(problem)) from None
    detail = problem_of(spec)
    if detail is not None:
        raise HeadraceError(ErrorKind.INVALID_REQUEST, detail)

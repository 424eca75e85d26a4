"""Door: compatibility and modes of the schema registry: of all subjects, of a context (`:.name:`), of one.

GET|PUT|DELETE /config, /config/{subject}, /mode, /mode/{subject}
"""

from __future__ import annotations

from headrace.broker.schema_registry import NotRegistered, RegistryRefused, SchemaRegistry
from headrace.http.messages import Answer, Request, Response
from headrace.http.router import Router
from headrace.http.schemas.words import ConfigBody, ModeBody, answered, body_of, flag
from headrace.schemas.compatibility import LEVELS
from headrace.schemas.registry import MODES, Config
from headrace.security.rights import CLUSTER, TOPIC, alter_configs, describe_configs, needs

OF_SUBJECT = "topic of {subject}"


class SettingsDoor:
    def __init__(self, schemas: SchemaRegistry) -> None:
        self._schemas = schemas

    def mount(self, router: Router, prefix: str) -> None:
        look, change = needs(describe_configs(CLUSTER)), needs(alter_configs(CLUSTER))
        look_one = needs(describe_configs(TOPIC, OF_SUBJECT))
        change_one = needs(alter_configs(TOPIC, OF_SUBJECT))
        for place, (see, put, delete) in {
            "config": (self._config, self._put_config, self._delete_config),
            "mode": (self._mode, self._put_mode, self._delete_mode),
        }.items():
            whole, one = f"{prefix}/{place}", f"{prefix}/{place}/{{subject}}"
            router.add("GET", whole, see, look)
            router.add("PUT", whole, put, change)
            router.add("DELETE", whole, delete, change)
            router.add("GET", one, see, look_one)
            router.add("PUT", one, put, change_one)
            router.add("DELETE", one, delete, change_one)

    def _config(self, request: Request) -> Response:
        subject, registry = request.params.get("subject", ""), self._schemas.now
        held = registry.configs.get(subject)
        if held is None and subject and not flag(request, "defaultToGlobal"):
            raise NotRegistered(40408, f'"{subject}" has no compatibility of its own')
        document: dict[str, object] = {"compatibilityLevel": registry.level(subject)}
        if held is not None and held.normalize is not None:
            document["normalize"] = held.normalize
        return answered(document)

    async def _put_config(self, request: Request) -> Answer:
        subject = request.params.get("subject", "")
        body = body_of(request, ConfigBody)
        wanted = (body.compatibility or "").upper()
        level = next((known for known in LEVELS if known == wanted), None)
        if wanted and level is None:
            raise RegistryRefused(
                42203, f"there is no compatibility {wanted!r}; there are {', '.join(LEVELS)}"
            )
        for name in ("alias", "compatibilityGroup", "defaultMetadata", "overrideMetadata", "defaultRuleSet",
                     "overrideRuleSet"):  # fmt: skip
            if getattr(body, name):
                raise RegistryRefused(422, f"{name} is not kept here")
        before = self._schemas.now.configs.get(subject, Config())
        config = Config(level or before.level, before.normalize if body.normalize is None else body.normalize)
        await self._schemas.configure(subject, config)
        document: dict[str, object] = {} if level is None else {"compatibility": level}
        if config.normalize is not None:
            document["normalize"] = config.normalize
        return answered(document)

    async def _delete_config(self, request: Request) -> Answer:
        subject, registry = request.params.get("subject", ""), self._schemas.now
        if subject and subject not in registry.configs:
            raise NotRegistered(40408, f'"{subject}" has no compatibility of its own')
        level = registry.level(subject)
        await self._schemas.configure(subject, None)
        return answered({"compatibilityLevel": level})

    def _mode(self, request: Request) -> Response:
        subject, registry = request.params.get("subject", ""), self._schemas.now
        if subject and subject not in registry.modes and not flag(request, "defaultToGlobal"):
            raise NotRegistered(40409, f'"{subject}" has no mode of its own')
        return answered({"mode": registry.mode(subject)})

    async def _put_mode(self, request: Request) -> Answer:
        mode = (body_of(request, ModeBody).mode or "").upper()
        for known in MODES:
            if mode == known:
                await self._schemas.switch(
                    request.params.get("subject", ""), known, force=flag(request, "force")
                )
                return answered({"mode": mode})
        raise RegistryRefused(42204, f"there is no mode {mode!r}; there are {', '.join(MODES)}")

    async def _delete_mode(self, request: Request) -> Answer:
        subject, registry = request.params.get("subject", ""), self._schemas.now
        if subject and subject not in registry.modes:
            raise NotRegistered(40409, f'"{subject}" has no mode of its own')
        mode = registry.mode(subject)
        await self._schemas.switch(subject, None, force=True)
        return answered({"mode": mode})

"""Command: one flag for each field of Settings, so that a new setting is a flag, a variable and a TOML key at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, get_args, get_origin

import click
import msgspec

from headrace.core.units import format_duration_ms
from headrace.node.settings import Settings, field_documentation, is_duration, is_size


class SettingOption(click.Option):
    """Its help is the field's docstring, which is read only when somebody asks for help."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        assert self.name is not None
        self.help = f"{documentation()[self.name]}  [{default_text(self.name)}]"
        return super().get_help_record(ctx)


@cache
def documentation() -> dict[str, str]:
    return field_documentation(Settings)


def default_text(name: str) -> str:
    value = defaults()[name]
    if isinstance(value, bool):
        return "on" if value else "off"
    if is_duration(name):
        return format_duration_ms(value)
    return str(value) if value != "" else "empty"


@cache
def defaults() -> dict[str, Any]:
    return msgspec.structs.asdict(Settings())


def setting_options(function: Callable[..., Any]) -> Callable[..., Any]:
    for field in reversed(msgspec.structs.fields(Settings)):
        flag = "--" + field.name.replace("_", "-")
        settings: dict[str, Any] = {"cls": SettingOption, "default": None}
        kind = field.type
        if kind is bool:
            names = [f"{flag}/--no-{flag[2:]}"]
        else:
            names = [flag]
            if get_origin(kind) is not None and all(isinstance(choice, str) for choice in get_args(kind)):
                settings["type"] = click.Choice(get_args(kind))
            else:
                settings["metavar"] = metavar(field.name, kind)
        function = click.option(*names, field.name, **settings)(function)
    return function


def flag_words(flags: Mapping[str, Any]) -> list[str]:
    """Given flags as they are typed, for a broker that is started for somebody."""
    words: list[str] = []
    for name, value in flags.items():
        flag = "--" + name.replace("_", "-")
        if isinstance(value, bool):
            words.append(flag if value else f"--no-{flag[2:]}")
        elif value is not None:
            words += [flag, str(value)]
    return words


def metavar(name: str, kind: Any) -> str:
    """Values are checked by Settings itself, all at once; this only says what is expected."""
    if is_duration(name):
        return "DURATION"
    if is_size(name):
        return "SIZE"
    return "TEXT" if kind is str else "NUMBER"

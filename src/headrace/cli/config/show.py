"""Command: `headrace config show`."""

from __future__ import annotations

import os
from typing import Any, ClassVar

import click
import msgspec

from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Column, Row, Shape, column
from headrace.cli.profile import profile_layers, settings_failure
from headrace.core.units import format_duration_ms
from headrace.node.settings import (
    LoadedSettings,
    SettingsError,
    default_files,
    environment_name,
    is_duration,
    load_settings,
)


class SettingRow(Row):
    SCHEMA: ClassVar[str] = "headrace.config.show/v1"
    name: str
    """As in headrace.toml; client settings are in its [client] table."""
    value: str | int | bool
    origin: str
    """default, a file, a variable or the command line."""
    variable: str


@leaf(SettingRow, Shape.ITEMS)
@click.option("--origin", is_flag=True, help="Also where each value comes from.")
def command(run: Invocation, origin: bool) -> None:
    """Show every setting and its value.

    A flag beats a HEADRACE_ variable, which beats ./headrace.toml, which beats the user's config.toml.
    """
    try:
        broker = load_settings({}, os.environ, default_files())
    except SettingsError as error:
        raise settings_failure(error) from None
    rows = _rows("", broker) + _rows("client.", profile_layers({}))
    columns = [column("NAME", "name"), Column("VALUE", _shown)]
    if origin:
        columns += [column("ORIGIN", "origin"), column("VARIABLE", "variable", wide=True)]
    run.output.items(SettingRow, rows, columns)
    if origin:
        run.note("Files, weakest first: " + ", ".join(_described(str(path)) for path in default_files()))


def _rows(prefix: str, loaded: LoadedSettings[Any]) -> list[SettingRow]:
    return [
        SettingRow(
            name=prefix + name,
            value=value,
            origin=loaded.origins.get(name, "default"),
            variable=environment_name(name),
        )
        for name, value in msgspec.structs.asdict(loaded.settings).items()
    ]


def _shown(row: SettingRow) -> object:
    if is_duration(row.name) and isinstance(row.value, int):
        return f"{row.value} ({format_duration_ms(row.value)})"
    return row.value if row.value != "" else "-"


def _described(path: str) -> str:
    return path if os.path.exists(path) else f"{path} (not there)"

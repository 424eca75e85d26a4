"""Driver: a table's columns follow the schema (T5). New ones are added, wider types widen the column, and ids are never used again; what is
neither is refused, gets a column of its own, or keeps the column and sends the rows that do not fit to the dead, as `on_schema` says."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
from pyiceberg.exceptions import ValidationError
from pyiceberg.table import Table

from headrace.core.errors import ErrorKind, HeadraceError
from headrace.spark.iceberg.columns import Columns, without_metadata

_WIDER = {(pa.int32(), pa.int64()), (pa.float32(), pa.float64())}


def follow(table: Table, columns: Columns, on_schema: str) -> Columns:
    """Change the table where that is needed, and say how values are to be read so that they fit it."""
    known = {one.name: without_metadata(one).type for one in table.schema().as_arrow()}
    new = [one for one in columns.schema if one.name not in known]
    fields = list(columns.fields) if columns.fields is not None else []
    renames = dict(columns.renames)
    for at, (field, name) in enumerate(zip(list(fields), columns.names, strict=True)):
        had = known.get(name)
        if had is None or had == field.type:
            continue
        if _is_wider(had, field.type):
            new.append(field.with_name(name))
        elif _is_wider(field.type, had) or (on_schema == "dead_letter" and not _grows(table, name, field)):
            fields[at] = field.with_type(had)
        elif _grows(table, name, field):
            new.append(field.with_name(name))
        elif on_schema == "new_column":
            renames[field.name] = _fresh_name(name, field.type, known, new)
        else:
            raise HeadraceError(
                ErrorKind.INVALID_CONFIG,
                f"the column {name} of {'.'.join(table.name())} is {had}, and the schema says {field.type} now, which is not wider",
                'on_schema = "new_column" gives it a column of its own, "dead_letter" keeps the column',
            )
    fitted = replace(
        columns,
        fields=pa.schema(fields) if columns.fields is not None else None,
        renames=tuple(renames.items()),
    )
    new += [
        one for one in fitted.schema if one.name not in known and one.name not in {have.name for have in new}
    ]
    if new:
        with table.update_schema() as update:
            update.union_by_name(pa.schema(new))
    return fitted


def _is_wider(had: pa.DataType, now: pa.DataType) -> bool:
    if pa.types.is_decimal(had) and pa.types.is_decimal(now):
        return bool(had.scale == now.scale and had.precision < now.precision)
    return (had, now) in _WIDER


def _grows(table: Table, name: str, field: pa.Field) -> bool:
    """Inside of structs and lists the same rules hold; pyiceberg knows them."""
    if not pa.types.is_nested(field.type):
        return False
    try:
        table.update_schema().union_by_name(pa.schema([field.with_name(name)]))
    except (ValidationError, ValueError, TypeError):
        return False
    return True


def _fresh_name(name: str, kind: pa.DataType, known: dict[str, pa.DataType], new: list[pa.Field]) -> str:
    """The same one at the next round: a column of that name and type may be there already."""
    taken = {**known, **{one.name: None for one in new}}
    number = 2
    while f"{name}_{number}" in taken and taken[f"{name}_{number}"] != kind:
        number += 1
    return f"{name}_{number}"

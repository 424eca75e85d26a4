"""Driver: what only the cluster, the stores and Spark can say about a definition before it runs (T19). Each check returns what is wrong, as a
person would say it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.core.errors import HeadraceError
from headrace.spark.pipelines.definition import (
    Aggregate,
    Archive,
    Audit,
    DefinitionError,
    Kinds,
    Mirror,
    Redrive,
    Replay,
    Table,
    Transform,
    checked,
)
from headrace.spark.service.store import Store
from headrace.spark.sync_client import SyncClient

if TYPE_CHECKING:
    from headrace.core.pipelines import Submitted

_READ, _WRITE = 3, 4
_VIEW_SOURCE = "headrace.view.source"


def problems(found: Kinds, *, with_spark: bool) -> list[str]:
    try:
        with SyncClient(found.access()) as client:
            wrong = _topics(found, client)
            wrong += _loop(found, client)
            if isinstance(found, Mirror):
                wrong += _same_cluster(found, client)
    except HeadraceError as problem:
        wrong = [f"{found.bootstrap}: {problem}"]
    wrong += _places(found)
    return wrong + (_analysed(found) if with_spark and not wrong else [])


def sources(found: Kinds) -> list[str]:
    if isinstance(found, (Table, Audit)):
        return [found.topic]
    return list(found.topics) if isinstance(found, (Archive, Transform, Aggregate, Mirror)) else []


def targets(found: Kinds) -> list[str]:
    """Topics of the same cluster."""
    if isinstance(found, (Transform, Aggregate)):
        return [one for one in (found.target, found.dead_letter) if one]
    if isinstance(found, Replay):
        return [found.topic]
    return [found.to] if isinstance(found, Redrive) and found.to else []


def _topics(found: Kinds, client: SyncClient) -> list[str]:
    read, written = sources(found), targets(found)
    # Others are made when they are needed.
    needed = {found.target} if isinstance(found, (Transform, Aggregate)) and found.target else set()
    rights = client.rights({*read, *written})
    wrong = [f'topic "{name}" does not exist, or may not be seen' for name in read if name not in rights]
    wrong += [
        f'topic "{name}" does not exist: headrace topic create {name}'
        for name in needed
        if name not in rights
    ]
    for names, right, word in ((read, _READ, "read"), (written, _WRITE, "written to")):
        wrong += [
            f'topic "{name}" may not be {word} by who asks here'
            for name in names
            if name in rights and right not in rights[name]
        ]
    return wrong


def _loop(found: Kinds, client: SyncClient) -> list[str]:
    """Would what this pipeline writes come back to it, through views and through pipelines that are submitted?"""
    store = Store(client)
    store.follow()
    others = [store.definition(name) for name in store.names() if name != found.name]
    follows: dict[str, set[str]] = {}
    for source, target in _edges(one for one in others if one is not None):
        follows.setdefault(source, set()).add(target)
    for name in sources(found):
        base = _view_of(client, name)
        if base:
            follows.setdefault(base, set()).add(name)
    reached = _reached(targets(found), follows)
    return [
        f'what it writes comes back to it as "{name}" ({" -> ".join(reached[name])})'
        for name in sources(found)
        if name in reached
    ]


def _edges(others: Iterable[Submitted]) -> Iterator[tuple[str, str]]:
    for other in others:
        try:
            found = checked(dict(other.definition))
        except DefinitionError:
            continue  # of another version; its own runs say so
        for source in sources(found):
            for target in targets(found):
                yield source, target


def _view_of(client: SyncClient, name: str) -> str:
    try:
        return client.topic_configs(name).get(_VIEW_SOURCE, "")
    except HeadraceError:
        return ""  # not there, or not to be seen: said already


def _reached(begin: Iterable[str], follows: Mapping[str, set[str]]) -> dict[str, list[str]]:
    """Topic -> the way to it."""
    ways = {name: [name] for name in begin}
    waiting = list(ways)
    while waiting:
        name = waiting.pop()
        for following in sorted(follows.get(name, ())):
            if following not in ways:
                ways[following] = [*ways[name], following]
                waiting.append(following)
    return ways


def _same_cluster(found: Mirror, client: SyncClient) -> list[str]:
    here = client.cluster_id()
    try:
        with SyncClient(found.target_login.access(found.target_bootstrap)) as other:
            if here is not None and other.cluster_id() == here:
                return [f'target_bootstrap = "{found.target_bootstrap}" is the cluster itself']
    except HeadraceError as problem:
        return [f"target_bootstrap: {problem}"]
    return []


def _places(found: Kinds) -> list[str]:
    """Can be written to, and catalogs and registries answer."""
    wrong = []
    for key in ("path", "warehouse", "report", "state"):
        text = getattr(found, key, "")
        if text and "://" not in text and not _may_write(Path(text)):
            wrong.append(f'{key} = "{text}" is not a directory that can be written to')
    return wrong + (_table(found) if isinstance(found, Table) and not wrong else [])


def _may_write(path: Path) -> bool:
    while not path.exists() and path != path.parent:
        path = path.parent
    return path.is_dir() and os.access(path, os.W_OK | os.X_OK)


def _table(found: Table) -> list[str]:
    try:
        from headrace.spark.iceberg.tables import held, open_catalog
        from headrace.spark.pipelines.table import columns_of
    except ImportError as problem:
        return [f"tables need pyiceberg (no {problem.name}): pip install 'headrace[spark,tables]'"]
    try:
        columns_of(found)
        catalog = open_catalog(found.warehouse, found.catalog)
        known = (
            held(catalog.load_table(found.table_name)).topic if catalog.table_exists(found.table_name) else ""
        )
    except HeadraceError as problem:
        return [str(problem)]
    except Exception as problem:  # of whichever library the catalog or the registry needs
        return [f"{found.table_name}: {type(problem).__name__}: {problem}"]
    if known not in ("", found.topic):
        return [f'table "{found.table_name}" is that of the topic {known}']
    return []


def _analysed(found: Kinds) -> list[str]:
    """Spark reads the SQL as it would in the run: names of columns, types and functions. Nothing is computed."""
    if not isinstance(found, (Transform, Aggregate)) or (isinstance(found, Transform) and not found.sql):
        return []
    from pyspark.errors import PySparkException

    from headrace.spark import register
    from headrace.spark.pipelines.streams import analysed
    from headrace.spark.session import local_session

    spark = local_session(found.name, master="local[1]", quiet=True)
    try:
        register(spark)
        rows, _ = analysed(spark, found)
        if not isinstance(found, Aggregate) and "value" not in rows.columns:
            return [
                f"the result has no column value, which is what is written; it has {', '.join(rows.columns)}"
            ]
    except PySparkException as problem:
        return [f"Spark: {str(problem).splitlines()[0]}"]
    except (HeadraceError, DefinitionError) as problem:
        return [str(problem)]
    return []

"""Codec: our notation for Kafka messages.

A message is a slots dataclass whose fields say how they travel:

    @message(key=12, versions=(0, 4), flexible=4)
    class HeartbeatRequest:
        group_id: str = string()
        generation_id: int = int32()
        group_instance_id: str | None = string(None, since=3, nullable=3)

`since` and `until` bound the versions that carry the field, `nullable` is the first version that may say null, `tag`
makes it a tagged field. A version that does not carry a field drops it when encoding and yields its default when
decoding, so that a handler fills one value for every version.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple, TypeVar, dataclass_transform

from headrace.core.ids import ZERO_UUID
from headrace.core.ports import Buffer

T = TypeVar("T")

ANY_VERSION = 1 << 15


class FieldKind(Enum):
    """The value is the `struct` code of a fixed-size type; the others are handled one by one."""

    BOOL = "?"
    INT8 = "b"
    INT16 = "h"
    UINT16 = "H"
    INT32 = "i"
    INT64 = "q"
    FLOAT64 = "d"
    UUID = "16s"
    STRING = "string"
    BYTES = "bytes"
    RECORDS = "records"
    STRUCT = "struct"
    ARRAY = "array"


class Element(NamedTuple):
    """What an array holds: a primitive, or `struct`s."""

    kind: FieldKind
    struct: type[Any] | None = None


class FieldSpec(NamedTuple):
    name: str
    kind: FieldKind
    struct: type[Any] | None
    element: Element | None
    since: int
    until: int
    nullable: int
    """First version in which null can be said; ANY_VERSION when none."""
    tag: int | None
    default: Any
    """The default value; `list` or the struct class when a fresh one is made each time."""

    def carried_by(self, version: int) -> bool:
        return self.since <= version <= self.until


class MessageSpec(NamedTuple):
    key: int
    first: int
    last: int
    flexible: int
    """First version with compact types and tagged fields; ANY_VERSION when none."""


STRUCTS: dict[type[Any], tuple[FieldSpec, ...]] = {}
MESSAGES: dict[type[Any], MessageSpec] = {}

HAND_WRITTEN: dict[type[Any], tuple[Callable[[Buffer, int, int], Any], Callable[[Any, int], list[Any]]]] = {}
"""Messages with their own `decode(buf, pos, version)` and `encode(value, version)`: the hot ones."""


def _field(
    kind: FieldKind,
    default: Any,
    since: int,
    until: int | None,
    nullable: int | None,
    tag: int | None,
    struct: type[Any] | None = None,
    element: Element | None = None,
) -> Any:
    spec = FieldSpec(
        "",
        kind,
        struct,
        element,
        since,
        ANY_VERSION if until is None else until,
        ANY_VERSION if nullable is None else nullable,
        tag,
        default,
    )
    if callable(default):
        return dataclasses.field(default_factory=default, metadata={"spec": spec})
    return dataclasses.field(default=default, metadata={"spec": spec})


def boolean(
    default: bool = False, *, since: int = 0, until: int | None = None, tag: int | None = None
) -> Any:
    return _field(FieldKind.BOOL, default, since, until, None, tag)


def int8(default: int = 0, *, since: int = 0, until: int | None = None, tag: int | None = None) -> Any:
    return _field(FieldKind.INT8, default, since, until, None, tag)


def int16(default: int = 0, *, since: int = 0, until: int | None = None, tag: int | None = None) -> Any:
    return _field(FieldKind.INT16, default, since, until, None, tag)


def uint16(default: int = 0, *, since: int = 0, until: int | None = None, tag: int | None = None) -> Any:
    return _field(FieldKind.UINT16, default, since, until, None, tag)


def int32(default: int = 0, *, since: int = 0, until: int | None = None, tag: int | None = None) -> Any:
    return _field(FieldKind.INT32, default, since, until, None, tag)


def int64(default: int = 0, *, since: int = 0, until: int | None = None, tag: int | None = None) -> Any:
    return _field(FieldKind.INT64, default, since, until, None, tag)


def float64(default: float = 0.0, *, since: int = 0, until: int | None = None, tag: int | None = None) -> Any:
    return _field(FieldKind.FLOAT64, default, since, until, None, tag)


def uuid(
    default: bytes = ZERO_UUID, *, since: int = 0, until: int | None = None, tag: int | None = None
) -> Any:
    return _field(FieldKind.UUID, default, since, until, None, tag)


def string(
    default: str | None = "",
    *,
    since: int = 0,
    until: int | None = None,
    nullable: int | None = None,
    tag: int | None = None,
) -> Any:
    return _field(FieldKind.STRING, default, since, until, nullable, tag)


def octets(
    default: bytes | None = b"",
    *,
    since: int = 0,
    until: int | None = None,
    nullable: int | None = None,
    tag: int | None = None,
) -> Any:
    return _field(FieldKind.BYTES, default, since, until, nullable, tag)


def record_data(default: bytes | None = None, *, since: int = 0, nullable: int | None = None) -> Any:
    """Record batches: any buffer when encoding, a slice of the frame (not a copy) when decoded."""
    return _field(FieldKind.RECORDS, default, since, None, nullable, None)


def nested(
    struct: type[Any],
    default: Any = ...,
    *,
    since: int = 0,
    until: int | None = None,
    nullable: int | None = None,
    tag: int | None = None,
) -> Any:
    """A struct inside; a nullable one is announced by a byte (KIP-893)."""
    return _field(
        FieldKind.STRUCT, struct if default is ... else default, since, until, nullable, tag, struct=struct
    )


def array(
    of: type[Any] | Callable[..., Any],
    default: Any = list,
    *,
    since: int = 0,
    until: int | None = None,
    nullable: int | None = None,
    tag: int | None = None,
) -> Any:
    """A list of structs (`array(Topic)`) or of primitives (`array(int32)`)."""
    element = Element(FieldKind.STRUCT, of) if of in STRUCTS else Element(of().metadata["spec"].kind)
    return _field(FieldKind.ARRAY, default, since, until, nullable, tag, element=element)


def _equal(self: Any, other: Any) -> bool:
    return other.__class__ is self.__class__ and all(
        getattr(self, name) == getattr(other, name) for name in self.__slots__
    )


def _show(self: Any) -> str:
    values = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
    return f"{self.__class__.__name__}({values})"


_FRESH = object()
"""Stands for a default that is made anew for each value: a list or a struct."""


def _make_init(cls: Any) -> Callable[..., None]:
    head, body, names = ["self"], [], {"_FRESH": _FRESH}
    for spec in STRUCTS[cls]:
        fresh = callable(spec.default)
        names["d_" + spec.name] = spec.default
        head.append(f"{spec.name}={'_FRESH' if fresh else 'd_' + spec.name}")
        value = f"d_{spec.name}() if {spec.name} is _FRESH else {spec.name}" if fresh else spec.name
        body.append(f"    self.{spec.name} = {value}")
    exec("\n".join([f"def __init__({', '.join(head)}):", *(body or ["    pass"])]), names)  # noqa: S102 (our own source)
    return names["__init__"]  # type: ignore[return-value]


def _lazy_init(cls: Any) -> Callable[..., None]:
    def __init__(self: Any, *args: Any, **values: Any) -> None:
        cls.__init__ = _make_init(cls)
        cls.__init__(self, *args, **values)

    return __init__


@dataclass_transform()
def struct(cls: type[T]) -> type[T]:
    """A dataclass with slots. Its __init__ is compiled at first use and equality and repr are shared: doing it for some
    300 classes up front would cost a tenth of a second at every start."""
    cls.__doc__ = cls.__doc__ or cls.__name__
    made: Any = dataclasses.dataclass(init=False, slots=True, eq=False, repr=False, match_args=False)(cls)
    made.__init__, made.__eq__, made.__hash__, made.__repr__ = _lazy_init(made), _equal, None, _show
    STRUCTS[made] = tuple(
        field.metadata["spec"]._replace(name=field.name) for field in dataclasses.fields(made)
    )
    return made  # type: ignore[no-any-return]


@dataclass_transform()
def message(
    *, key: int, versions: tuple[int, int], flexible: int | None = None
) -> Callable[[type[T]], type[T]]:
    """The outermost struct of an API. `key` -1 is for structs that travel inside others' byte fields."""

    def decorate(cls: type[T]) -> type[T]:
        made = struct(cls)
        MESSAGES[made] = MessageSpec(key, *versions, ANY_VERSION if flexible is None else flexible)
        return made

    return decorate

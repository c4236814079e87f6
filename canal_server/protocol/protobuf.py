"""Encoding and decoding of protobuf messages that are declared as dataclasses.

A message is a frozen, slotted dataclass whose fields are declared by the functions
below (`int32(1)`, `string(2, …)`), so that its declaration is its schema. Groups,
fixed-width numbers, packed fields and maps are not supported, as the protocol does not
use them.

Encoding is canonical: fields in ascending order, default values omitted. A field that
is declared `explicit` (a oneof with one field in the .proto file) is None if absent and
is written even if it is 0 or false. Decoding skips unknown fields.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from canal_server.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable
    from enum import IntEnum

T = TypeVar("T")

VARINT, LENGTH_DELIMITED = 0, 2  # wire types
_FIXED_SIZES = {1: 8, 5: 4}  # wire types that occur only in unknown fields
_VARINT_BYTES_MAX = 10
_MASK_64 = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class _Field:
    """The wire form of one attribute of a message."""

    number: int
    wire: int
    to_wire: Callable[[Any], Any] | None = None  # None: unchanged
    from_wire: Callable[[Any], Any] | None = None
    explicit: bool = False
    repeated: bool = False
    kind: type | None = None  # of a nested message


def _declare(default: object, spec: _Field, *, compare: bool = True) -> Any:
    if spec.explicit:
        default = None
    return dataclasses.field(default=default, compare=compare, metadata={"wire": spec})


def int32(number: int, *, explicit: bool = False) -> Any:
    """Declare a signed 32-bit number."""
    return _declare(0, _Field(number, VARINT, None, _to_int32, explicit))


def int64(number: int, *, explicit: bool = False) -> Any:
    """Declare a signed 64-bit number."""
    return _declare(0, _Field(number, VARINT, None, _to_int64, explicit))


def boolean(number: int, *, explicit: bool = False) -> Any:
    """Declare a truth value."""
    return _declare(False, _Field(number, VARINT, None, bool, explicit))


def enum(number: int, members: type[IntEnum], *, explicit: bool = False) -> Any:
    """Declare an enumeration; an unknown number stays a plain int."""
    by_number = {label.value: label for label in members}

    def from_wire(value: int) -> int:
        return by_number.get(value) or _to_int32(value)

    return _declare(0, _Field(number, VARINT, None, from_wire, explicit))


def string(number: int, *, compare: bool = True) -> Any:
    """Declare a text; `compare` false excludes it from equality."""
    spec = _Field(number, LENGTH_DELIMITED, str.encode, bytes.decode)
    return _declare("", spec, compare=compare)


def octets(number: int) -> Any:
    """Declare a string of bytes."""
    return _declare(b"", _Field(number, LENGTH_DELIMITED))


def repeated_octets(number: int) -> Any:
    """Declare any number of byte strings, as a tuple."""
    return _declare((), _Field(number, LENGTH_DELIMITED, repeated=True))


def message(number: int, kind: type) -> Any:
    """Declare a nested message; never None, omitted if all its fields are default."""
    spec = _Field(number, LENGTH_DELIMITED, encode, kind=kind)
    return dataclasses.field(default=kind(), metadata={"wire": spec})


def repeated_message(number: int, kind: type) -> Any:
    """Declare any number of messages, as a tuple."""
    return _declare(
        (), _Field(number, LENGTH_DELIMITED, encode, repeated=True, kind=kind)
    )


# --------------------------------------------------------------------------------
# Numbers
# --------------------------------------------------------------------------------


def varint(value: int) -> bytes:
    """Return a 64-bit number as a varint; negative numbers need ten bytes."""
    if 0 <= value < 128:  # noqa: PLR2004  # one byte holds seven bits
        return bytes((value,))
    if not -(1 << 63) <= value <= _MASK_64:
        raise ValueError(f"{value} does not fit in 64 bits")
    value &= _MASK_64
    out = bytearray()
    while value > 127:  # noqa: PLR2004
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _to_int32(value: int) -> int:
    value &= 0xFFFF_FFFF
    return value - (1 << 32) if value >> 31 else value


def _to_int64(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _rest_of_varint(data: bytes, at: int, first: int) -> tuple[int, int]:
    """Read a varint whose first byte, before `at`, announced more bytes.

    Returns the number (unsigned, 64 bits) and the offset after it. Raises IndexError at
    the end of the data.
    """
    value, shift = first & 127, 7
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:  # noqa: PLR2004
            return value & _MASK_64, at
        shift += 7
        if shift >= 7 * _VARINT_BYTES_MAX:
            raise ProtocolError(f"a number is longer than {_VARINT_BYTES_MAX} bytes")


# --------------------------------------------------------------------------------
# Messages
# --------------------------------------------------------------------------------


class _Plan(Generic[T]):
    """What is computed once per message class."""

    def __init__(self, kind: type[T]) -> None:
        self.kind = kind
        self.defaults: list[tuple[Callable[[T, object], None], object]] = []
        # By tag: how to store the value, how to decode it, whether it is repeated.
        self.readers: dict[
            int,
            tuple[Callable[[T, object], None], Callable[[Any], Any] | None, bool],
        ] = {}
        self.writers: list[tuple[str, bytes, object, _Field]] = []
        for attribute in dataclasses.fields(cast("Any", kind)):
            spec: _Field = attribute.metadata["wire"]
            # The setter of the slot: faster than __init__, whose assignments go through
            # object.__setattr__ because the class is frozen.
            store = getattr(kind, attribute.name).__set__
            tag = spec.number << 3 | spec.wire
            self.defaults.append((store, attribute.default))
            from_wire = spec.from_wire
            if spec.kind is not None:
                from_wire = partial(_decode, _plan_of(spec.kind))
            self.readers[tag] = (store, from_wire, spec.repeated)
            self.writers.append((attribute.name, varint(tag), attribute.default, spec))
        self.writers.sort(key=lambda writer: writer[3].number)


_plans: dict[type, _Plan[Any]] = {}


def _plan_of(kind: type[T]) -> _Plan[T]:
    plan = _plans.get(kind)
    if plan is None:  # two threads may both create one: they are equal
        plan = _plans[kind] = _Plan(kind)
    return plan


def encode(value: object) -> bytes:
    """Return the bytes of a message. Raises ValueError for a number above 64 bits."""
    out = bytearray()
    for name, tag, default, spec in _plan_of(type(value)).writers:
        content = getattr(value, name)
        if content == default and (content is None or not spec.explicit):
            continue
        for item in content if spec.repeated else (content,):
            wired = spec.to_wire(item) if spec.to_wire else item
            out += tag
            if spec.wire == VARINT:
                out += varint(int(wired))
            else:
                out += varint(len(wired))
                out += wired
    return bytes(out)


def decode(kind: type[T], data: bytes) -> T:
    """Decode a message of this class.

    Raises ProtocolError with the class name if the bytes are not such a message.
    """
    try:
        return _decode(_plan_of(kind), data)
    except IndexError:
        raise ProtocolError(f"malformed {kind.__name__}: truncated number") from None
    except UnicodeDecodeError as error:
        raise ProtocolError(f"malformed {kind.__name__}: {error.reason}") from None
    except ProtocolError as error:
        raise ProtocolError(f"malformed {kind.__name__}: {error}") from None


# One loop without calls for the common case, which is faster.
def _decode(plan: _Plan[T], data: bytes) -> T:  # noqa: C901, PLR0912
    value: T = plan.kind.__new__(plan.kind)
    for store, default in plan.defaults:
        store(value, default)
    readers = plan.readers
    lists: dict[Callable[[T, object], None], list[object]] = {}
    at, end = 0, len(data)
    while at < end:
        tag = data[at]
        at += 1
        if tag > 127:  # noqa: PLR2004
            tag, at = _rest_of_varint(data, at, tag)
        if tag & 7 not in (VARINT, LENGTH_DELIMITED):
            at = _skip(tag, at, end)
            continue

        number = data[at]
        at += 1
        if number > 127:  # noqa: PLR2004
            number, at = _rest_of_varint(data, at, number)
        raw: object = number
        if tag & 7 == LENGTH_DELIMITED:
            stop = at + number
            if stop > end:
                raise ProtocolError(
                    f"field {tag >> 3} has {number} bytes, but {end - at} are left"
                )
            raw = data[at:stop]
            at = stop

        reader = readers.get(tag)
        if reader is None:
            if tag < 8:  # noqa: PLR2004  # the number is above the three bits of the wire type
                raise ProtocolError("a field has number 0")
            continue
        store, from_wire, repeated = reader
        if from_wire is not None:
            raw = from_wire(raw)
        if repeated:
            lists.setdefault(store, []).append(raw)
        else:
            store(value, raw)
    for store, items in lists.items():
        store(value, tuple(items))
    return value


def _skip(tag: int, at: int, end: int) -> int:
    """Return the offset after an unknown field of fixed width."""
    size = _FIXED_SIZES.get(tag & 7)
    if size is None:
        raise ProtocolError(f"field {tag >> 3} has unknown wire type {tag & 7}")
    if at + size > end:
        raise ProtocolError(f"field {tag >> 3} is truncated")
    return at + size

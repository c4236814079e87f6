"""Expressions over the columns of a table in the lake, and their values.

Only what has the same result in MySQL, MariaDB and Arrow: anything else is not an
expression. Values for which the servers' result depends on a mode, such as numbers that
are too large, raise UnsureError: then the table is copied again.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class UnsureError(Exception):
    """Why the server may have other values than those computed."""


@dataclass(frozen=True, slots=True)
class Column:
    """The value of a column of the lake."""

    name: str


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal; a text has ASCII characters only."""

    value: int | Decimal | str | None


@dataclass(frozen=True, slots=True)
class Call:
    """The result of a function of `FUNCTIONS`."""

    function: str
    arguments: tuple[Expression, ...]


Expression = Column | Constant | Call


@dataclass(frozen=True, slots=True)
class Generated:
    """A generated column: its expression, and the values that its type has.

    Of a number, `least` and `greatest` are the bounds; of a text, `characters` and
    `bytes` are the maximum lengths. None: no bound.
    """

    expression: Expression
    is_nullable: bool = True
    least: int | None = None
    greatest: int | None = None
    characters: int | None = None
    bytes: int | None = None

    def values(self, rows: pa.Table, kind: pa.DataType) -> pa.ChunkedArray:
        """Return the column of some rows.

        Raises UnsureError if the server may have other values than those computed.
        """
        try:
            found = _value(self.expression, rows)
            found = self._as(kind, found, len(rows))
        except pa.ArrowException as error:
            raise UnsureError(
                f"a value of a generated column is not of type {kind}: {error}"
            ) from error
        if found.null_count and not self.is_nullable:
            raise UnsureError("a generated column that is NOT NULL would have NULL")
        return pa.chunked_array([found])

    def _as(self, kind: pa.DataType, value: Any, count: int) -> pa.Array:
        """Return a value for each row, as the column has it."""
        if isinstance(value, pa.Scalar):
            value = pa.repeat(value, count)
        if isinstance(value, pa.ChunkedArray):
            value = value.combine_chunks()
        if pa.types.is_boolean(value.type):
            value = value.cast(pa.int64())
        if pa.types.is_decimal(kind) and pa.types.is_decimal(value.type):
            value = pc.round(value, kind.scale, _AWAY_FROM_ZERO)
        elif pa.types.is_decimal(kind) and pa.types.is_integer(value.type):
            value = value.cast(_INTEGER_AS_DECIMAL)
        value = value.cast(kind)
        if pa.types.is_string(kind):
            _check(pc.utf8_length(value), None, self.characters)
            _check(pc.binary_length(value), None, self.bytes)
        else:
            _check(value, self.least, self.greatest)
        return value


# MySQL rounds exact numbers in this way.
_AWAY_FROM_ZERO: Final = "half_towards_infinity"
_INTEGER_AS_DECIMAL: Final = pa.decimal128(19, 0)


def _check(values: pa.Array, least: int | None, greatest: int | None) -> None:
    """Raise UnsureError for values out of bounds: the server may have cut them."""
    ends = pc.min_max(values)
    low, high = ends["min"].as_py(), ends["max"].as_py()
    if low is None:
        return
    if (least is not None and low < least) or (
        greatest is not None and high > greatest
    ):
        raise UnsureError("a value of a generated column does not fit into its type")


def _value(expression: Expression, rows: pa.Table) -> Any:
    """Return a value for each row, or a scalar for all of them."""
    if isinstance(expression, Constant):
        return _constant(expression.value)
    if isinstance(expression, Column):
        return _column(rows[expression.name])
    values = [_value(each, rows) for each in expression.arguments]
    return FUNCTIONS[expression.function](values)


def _constant(value: int | Decimal | str | None) -> pa.Scalar:
    if isinstance(value, int):
        return pa.scalar(value, pa.int64())
    if isinstance(value, Decimal):
        return pa.scalar(value).cast(pa.decimal256(38, -value.as_tuple().exponent))  # type: ignore[operator]  # of a number
    return pa.scalar(value, pa.string())


def _column(values: pa.ChunkedArray) -> Any:
    kind = values.type
    if pa.types.is_temporal(kind) and values.null_count:
        # The lake also has NULL for dates that do not exist, of which MySQL has parts.
        raise UnsureError("a date has NULL, or does not exist")
    if pa.types.is_integer(kind):
        return values.cast(pa.int64())
    if pa.types.is_decimal(kind):
        return values.cast(pa.decimal256(kind.precision, kind.scale))
    return values


# --------------------------------------------------------------------------------
# Functions: lists of values to a value
# --------------------------------------------------------------------------------


def _alike(values: Sequence[Any]) -> list[Any]:
    """Return values in one type: that of texts, or of the most exact numbers."""
    values = [_number(each) for each in values]
    kinds = [each.type for each in values if not _is_null(each)]
    if not kinds:
        return values
    decimals = [each for each in kinds if pa.types.is_decimal(each)]
    kind = kinds[0]
    if decimals:
        scale = max(each.scale for each in decimals)
        kind = pa.decimal256(_DIGITS_MAX, scale)
    return [
        pa.scalar(None, kind) if _is_null(each) else _cast(each, kind)
        for each in values
    ]


_DIGITS_MAX: Final = 76  # of Arrow


def _is_null(value: Any) -> bool:
    return isinstance(value, pa.Scalar) and not value.is_valid


def _cast(value: Any, kind: pa.DataType) -> Any:
    if pa.types.is_decimal(kind) and pa.types.is_integer(value.type):
        value = value.cast(pa.decimal256(19, 0))
    return value.cast(kind)


def _number(value: Any) -> Any:
    """Return truth as a number."""
    return value.cast(pa.int64()) if pa.types.is_boolean(value.type) else value


def _truth(value: Any) -> Any:
    """Return a number as truth: whether it is not 0."""
    if pa.types.is_boolean(value.type):
        return value
    if _is_null(value):
        return pa.scalar(None, pa.bool_())
    return pc.not_equal(value, pa.scalar(0).cast(pa.int64()).cast(value.type))


def _arithmetic(
    on_integers: Callable[..., Any], on_decimals: Callable[..., Any]
) -> Callable[[Sequence[Any]], Any]:
    def compute(values: Sequence[Any]) -> Any:
        one, other = (_number(each) for each in values)
        if _is_null(one) or _is_null(other):
            return pa.scalar(None, pa.int64())
        if pa.types.is_integer(one.type) and pa.types.is_integer(other.type):
            return on_integers(one, other)
        if pa.types.is_integer(one.type):
            one = one.cast(pa.decimal256(19, 0))
        if pa.types.is_integer(other.type):
            other = other.cast(pa.decimal256(19, 0))
        return on_decimals(one, other)

    return compute


def _divided(values: Sequence[Any]) -> Any:
    """Return the whole part of a quotient; NULL if the divisor is 0."""
    one, other = (_number(each) for each in values)
    if _is_null(one) or _is_null(other):
        return pa.scalar(None, pa.int64())
    none = pa.scalar(None, pa.int64())
    return pc.divide_checked(one, pc.if_else(pc.equal(other, 0), none, other))


def _remainder(values: Sequence[Any]) -> Any:
    one, other = (_number(each) for each in values)
    whole = _divided([one, other])
    if _is_null(whole):
        return whole
    return pc.subtract_checked(one, pc.multiply_checked(whole, other))


def _negated(values: Sequence[Any]) -> Any:
    (value,) = values
    return value if _is_null(value) else pc.negate_checked(_number(value))


def _unsigned(values: Sequence[Any]) -> Any:
    """Return a result of unsigned numbers; below 0, it depends on the mode."""
    (value,) = values
    if not _is_null(value):
        _check(value, 0, None) if not isinstance(value, pa.Scalar) else _check(
            pa.array([value.as_py()], value.type), 0, None
        )
    return value


def _compared(compare: Callable[..., Any]) -> Callable[[Sequence[Any]], Any]:
    def compute(values: Sequence[Any]) -> Any:
        one, other = _alike(values)
        if _is_null(one) or _is_null(other):
            return pa.scalar(None, pa.bool_())
        return compare(one, other)

    return compute


def _chosen(values: Sequence[Any]) -> Any:
    """Return IF: the second value where the first one is true, else the third."""
    condition, *both = values
    one, other = _alike(both)
    truth = pc.fill_null(_truth(condition), False)  # its arguments
    return pc.if_else(truth, one, other)


def _joined(values: Sequence[Any]) -> Any:
    texts = []
    for each in values:
        if _is_null(each):
            return pa.scalar(None, pa.string())
        texts.append(each if pa.types.is_string(each.type) else _text(each))
    return pc.binary_join_element_wise(*texts, "")  # NULL if any is NULL


def _text(value: Any) -> Any:
    """Return whole numbers as texts."""
    return _number(value).cast(pa.string())


def _start(values: Sequence[Any]) -> Any:
    text, count = values
    return pc.utf8_slice_codeunits(text, 0, max(0, count.as_py()))


def _part(of_time: Callable[..., Any]) -> Callable[[Sequence[Any]], Any]:
    return lambda values: of_time(values[0]).cast(pa.int64())


FUNCTIONS: Final[dict[str, Callable[[Sequence[Any]], Any]]] = {
    "+": _arithmetic(pc.add_checked, pc.add),
    "-": _arithmetic(pc.subtract_checked, pc.subtract),
    "*": _arithmetic(pc.multiply_checked, pc.multiply),
    "div": _divided,
    "mod": _remainder,
    "negate": _negated,
    "unsigned": _unsigned,
    "=": _compared(pc.equal),
    "<>": _compared(pc.not_equal),
    "<": _compared(pc.less),
    "<=": _compared(pc.less_equal),
    ">": _compared(pc.greater),
    ">=": _compared(pc.greater_equal),
    "and": lambda values: pc.and_kleene(*map(_truth, values)),
    "or": lambda values: pc.or_kleene(*map(_truth, values)),
    "not": lambda values: pc.invert(_truth(values[0])),
    "is null": lambda values: pc.is_null(values[0]),
    "if": _chosen,
    "coalesce": lambda values: pc.coalesce(*_alike(values)),
    "concat": _joined,
    "left": _start,
    "year": _part(pc.year),
    "month": _part(pc.month),
    "day": _part(pc.day),
    "quarter": _part(pc.quarter),
    "dayofyear": _part(pc.day_of_year),
    "hour": _part(pc.hour),
    "minute": _part(pc.minute),
    "second": _part(pc.second),
    "date": lambda values: values[0].cast(pa.date32(), safe=False),
}

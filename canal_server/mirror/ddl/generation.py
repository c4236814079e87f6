"""Expressions of generated columns, from their text in a statement.

Existing rows get their values without an event, so these are computed from other
columns of the lake. Only expressions count whose values are the same in all modes of a
server; `lake.generated` computes them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from canal_server.doors.sqltext import Dialect, SqlReader, SqlTextError
from canal_server.doors.sqltext.sql_reader import NAME, STRING
from canal_server.mirror.ddl.widening import BITS, holds
from canal_server.mirror.lake.generated.expressions import (
    Call,
    Column,
    Constant,
    Expression,
    Generated,
)
from canal_server.tablemeta.model.type_text import SIZES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from canal_server.mirror.settings.table_values import MirrorColumn
    from canal_server.model.columns_known import ColumnMeta

_INTEGER: Final = re.compile(r"\d{1,18}")
_DECIMAL: Final = re.compile(r"\d{1,18}\.\d{1,18}")
_DIGITS_MAX: Final = 65  # of a DECIMAL
_SCALE_MAX: Final = 30
_ARROW_DIGITS_MAX: Final = 38
_BIGINT_DIGITS: Final = 19
_ARGUMENTS: Final = re.compile(r"\((\d+)(?:\s*,\s*(\d+))?\)")
_WORD: Final = re.compile(r"[^\W\d][\w$]*")
_VARYING: Final = ("varchar", "tinytext", "text", "mediumtext", "longtext")
_COMPARED: Final = ("=", "<>", "<", "<=", ">", ">=")
_ENDS: Final = (",", ")", "")
_NULL: Final = Constant(None)


class NotComputableError(Exception):
    """Why values cannot be computed from rows of the lake."""


@dataclass(frozen=True, slots=True)
class _Typed:
    """An expression, and what MySQL knows of its values.

    `family` is number, text, date, datetime, or null. Numbers are whole unless `scale`
    is above 0 or they are `exact` decimals; `charsets` are those of a text's columns.
    """

    expression: Expression
    family: str
    is_decimal: bool = False
    is_unsigned: bool = False
    is_wide: bool = False  # BIGINT UNSIGNED: no arithmetic
    digits: int = _BIGINT_DIGITS
    scale: int = 0
    charsets: frozenset[str] = frozenset()


def generated(
    text: str,
    target: ColumnMeta,
    columns: Mapping[str, tuple[ColumnMeta, MirrorColumn]],
) -> Generated:
    """Return how a generated column is computed from columns of the lake.

    `columns` are those that the lake has before, by their names in lower case, as they
    are after the statement. Raises NotComputableError.
    """
    if "\\" in text or "\ufffd" in text:
        raise NotComputableError("its expression has an escape or an unknown character")
    try:
        reader = _Expression(text, columns)
        typed = reader.whole()
    except SqlTextError as error:
        raise NotComputableError(f"its expression cannot be parsed: {error}") from None
    return replace(_fitted(typed, target), expression=typed.expression)


def _fitted(typed: _Typed, target: ColumnMeta) -> Generated:
    """Return the bounds of a column's type, if it can have the values."""
    base = _base(target)
    if typed.family in ("number", "null") and base in (*BITS, "decimal", "numeric"):
        return _fitted_number(typed, target, base)
    if typed.family in ("text", "null") and base in _VARYING:
        return _fitted_text(typed, target, base)
    if typed.family == base == "date":
        return Generated(_NULL, target.nullable)
    raise NotComputableError(
        f"the value of a {target.mysql_type} depends on the server's conversion"
    )


def _fitted_number(typed: _Typed, target: ColumnMeta, base: str) -> Generated:
    if base not in BITS:
        digits, _ = _precision(target)
        if digits > _ARROW_DIGITS_MAX:
            raise NotComputableError(f"its type is {target.mysql_type}")
        return Generated(_NULL, target.nullable, 0 if target.unsigned else None)
    if typed.is_decimal:
        raise NotComputableError("its expression is rounded to whole numbers")
    bits = BITS[base]
    least, greatest = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    if target.unsigned:
        least, greatest = 0, (1 << bits) - 1
    return Generated(_NULL, target.nullable, least, greatest)


def _fitted_text(typed: _Typed, target: ColumnMeta, base: str) -> Generated:
    charset = target.charset or ""
    if not all(holds(charset, each) for each in typed.charsets):
        raise NotComputableError("its character set does not have all characters")
    if base == "varchar":
        found = _ARGUMENTS.search(target.mysql_type)
        characters = int(found[1]) if found else 0
        return Generated(_NULL, target.nullable, characters=characters)
    if charset not in ("utf8mb4", "utf8mb3", "utf8", "ascii"):
        raise NotComputableError("the size of its texts is not known")
    return Generated(_NULL, target.nullable, bytes=SIZES[base.removesuffix("text")])


class _Expression(SqlReader):
    """Reads an expression with the precedence of MySQL's operators."""

    def __init__(
        self, text: str, columns: Mapping[str, tuple[ColumnMeta, MirrorColumn]]
    ) -> None:
        super().__init__(text, Dialect())
        self._columns_of_table = columns

    def whole(self) -> _Typed:
        """Read the text to its end. Raises NotComputableError, SqlTextError."""
        found = self._or()
        if not self.at_end():
            raise self._unknown()
        return found

    def _unknown(self) -> NotComputableError:
        return NotComputableError(
            f"its expression has {self.peek()[:40]!r}, which is not computed"
        )

    # --- operators, from the weakest ---

    def _or(self) -> _Typed:
        left = self._and()
        while self.accept("OR"):
            left = _truth("or", left, self._and())
        return left

    def _and(self) -> _Typed:
        left = self._not()
        while self.accept("AND"):
            left = _truth("and", left, self._not())
        return left

    def _not(self) -> _Typed:
        if not self.accept("NOT"):
            return self._comparison()
        if self.peek() != "(":
            raise NotComputableError("its expression has a NOT that depends on a mode")
        # What follows the parentheses may only be AND or OR.
        return _truth("not", self._enclosed())

    def _comparison(self) -> _Typed:
        left = self._sum()
        if self.accept("IS"):
            is_negated = self.accept("NOT")
            self.expect("NULL")
            if left.family not in ("number", "text"):
                raise NotComputableError("its expression asks if a date is NULL")
            found = _number(Call("is null", (left.expression,)))
            return _truth("not", found) if is_negated else found
        sign = "<>" if self.accept("!", "=") else self.accept_any(_COMPARED)
        if not sign:
            return left
        right = self._sum()
        _expect_numbers(left, right)
        if self.peek() in _COMPARED:
            raise self._unknown()
        return _number(Call(sign, (left.expression, right.expression)))

    def _sum(self) -> _Typed:
        left = self._product()
        while sign := self.accept_any(("+", "-")):
            left = _calculated(sign, left, self._product())
        return left

    def _product(self) -> _Typed:
        left = self._unary()
        while sign := self.accept_any(("*", "DIV", "MOD", "%")):
            name = {"%": "mod"}.get(sign, sign.lower())
            left = _calculated(name, left, self._unary())
        return left

    def _unary(self) -> _Typed:
        if not self.accept("-"):
            return self._operand()
        value = self._unary()
        _expect_numbers(value)
        if value.is_wide:
            raise NotComputableError("its expression negates a BIGINT UNSIGNED")
        negated = Call("negate", (value.expression,))
        return replace(value, expression=negated, is_unsigned=False)

    # --- operands ---

    def _operand(self) -> _Typed:
        word = self.peek()
        if word == "(":
            return self._enclosed()
        if word == STRING:
            return self._text()
        if word[:1].isdigit():
            return self._literal()
        if self.accept("NULL"):
            return _Typed(_NULL, "null")
        if word != NAME and self.peek(1) == "(":
            return self._call()
        return self._case() if word == "CASE" else self._column()

    def _enclosed(self) -> _Typed:
        self.expect("(")
        found = self._or()
        self.expect(")")
        return found

    def _literal(self) -> _Typed:
        """Read a number without a sign or an exponent."""
        word = self.peek()
        whole, _, fraction = word.partition(".")
        digits, scale = len(whole) + len(fraction), len(fraction)
        if _INTEGER.fullmatch(word):
            self.next()
            return _Typed(Constant(int(word)), "number", digits=digits)
        if not _DECIMAL.fullmatch(word):
            raise self._unknown()
        self.next()
        value = Constant(Decimal(word))
        return _Typed(value, "number", is_decimal=True, digits=digits, scale=scale)

    def _text(self) -> _Typed:
        quoted = self.text_of()
        self.next()
        value = quoted[1:-1].replace("''", "'")
        if quoted[0] != "'" or self.peek() == STRING or not value.isascii():
            raise NotComputableError("its expression has a text that depends on a mode")
        return _Typed(Constant(value), "text")

    def _column(self) -> _Typed:
        if self.peek() != NAME and not _WORD.fullmatch(self.peek()):
            raise self._unknown()
        name = self.name()
        if self.peek() in (".", STRING) or name.lower() not in self._columns_of_table:
            raise NotComputableError(
                f"its expression has {name[:64]}, which is no column that the lake has "
                "with the same values"
            )
        return _of_column(*self._columns_of_table[name.lower()])

    def _case(self) -> _Typed:
        """Read CASE WHEN … THEN … ELSE … END, without a value to compare."""
        self.expect("CASE")
        branches = []
        while self.accept("WHEN"):
            condition = self._or()
            _expect_numbers(condition)
            self.expect("THEN")
            branches.append((condition, self._or()))
        if not branches:
            raise self._unknown()
        found = self._or() if self.accept("ELSE") else _Typed(Constant(None), "null")
        self.expect("END")
        for condition, value in reversed(branches):
            chosen = (condition.expression, value.expression, found.expression)
            found = replace(_united([value, found]), expression=Call("if", chosen))
        return found

    def _call(self) -> _Typed:
        name = self.next()
        self.expect("(")
        arguments = []
        while self.peek() not in _ENDS:
            arguments.append(self._or())
            if not self.accept(","):
                break
        self.expect(")")
        return _called(name.lower(), arguments)


def _of_column(meta: ColumnMeta, column: MirrorColumn) -> _Typed:
    """Return the value of a column, if the lake has it as the server has it."""
    base, value = _base(meta), Column(column.target)
    words = meta.mysql_type.lower().split()
    problem = NotComputableError(
        f"its expression has column {meta.name}, which is {meta.mysql_type}"
    )
    if column.mask is not None or column.form or "zerofill" in words:
        raise problem
    if base in BITS:
        is_wide = base == "bigint" and meta.unsigned
        return _Typed(value, "number", is_unsigned=meta.unsigned, is_wide=is_wide)
    if base in ("decimal", "numeric"):
        digits, scale = _precision(meta)
        if digits > _ARROW_DIGITS_MAX:
            raise problem
        return _Typed(
            value,
            "number",
            is_decimal=True,
            is_unsigned=meta.unsigned,
            digits=digits,
            scale=scale,
        )
    if base in _VARYING and meta.charset not in (None, "binary"):
        return _Typed(value, "text", charsets=frozenset((meta.charset,)))
    if base in ("date", "datetime"):
        return _Typed(value, base)
    raise problem


def _number(expression: Expression) -> _Typed:
    return _Typed(expression, "number", digits=1)


def _expect_numbers(*values: _Typed) -> None:
    if any(each.family not in ("number", "null") for each in values):
        raise NotComputableError("its expression converts a text or a date to a number")


def _truth(name: str, *values: _Typed) -> _Typed:
    _expect_numbers(*values)
    return _number(Call(name, tuple(each.expression for each in values)))


def _calculated(name: str, left: _Typed, right: _Typed) -> _Typed:
    """Return the result of an operator on numbers."""
    _expect_numbers(left, right)
    if left.is_wide or right.is_wide:
        raise NotComputableError("its expression calculates with a BIGINT UNSIGNED")
    is_decimal = left.is_decimal or right.is_decimal
    if is_decimal and name in ("div", "mod"):
        raise NotComputableError("its expression divides a decimal number")
    is_unsigned = not is_decimal and (left.is_unsigned or right.is_unsigned)
    expression: Expression = Call(name, (left.expression, right.expression))
    if is_unsigned:
        expression = Call("unsigned", (expression,))
    if name == "*":
        digits, scale = left.digits + right.digits, left.scale + right.scale
    else:
        scale = max(left.scale, right.scale)
        whole = max(left.digits - left.scale, right.digits - right.scale)
        digits = whole + scale + 1
    if is_decimal and (digits > _DIGITS_MAX or scale > _SCALE_MAX):
        raise NotComputableError("its expression has more digits than a DECIMAL")
    return _Typed(
        expression,
        "number",
        is_decimal=is_decimal,
        is_unsigned=is_unsigned,
        digits=digits if is_decimal else _BIGINT_DIGITS,
        scale=scale,
    )


def _united(values: list[_Typed]) -> _Typed:
    """Return the type of a value that is one of several."""
    families = {each.family for each in values} - {"null"}
    if len(families) > 1 or families - {"number", "text"}:
        raise NotComputableError("its expression has values of different types")
    scale = max(each.scale for each in values)
    whole = max(each.digits - each.scale for each in values)
    return _Typed(
        Constant(None),
        families.pop() if families else "null",
        is_decimal=any(each.is_decimal for each in values),
        is_unsigned=any(each.is_unsigned for each in values),
        is_wide=any(each.is_wide for each in values),
        digits=whole + scale,
        scale=scale,
        charsets=frozenset().union(*(each.charsets for each in values)),
    )


def _called(  # one for each function
    name: str, arguments: list[_Typed]
) -> _Typed:
    """Return the result of a function."""
    name = {"dayofmonth": "day", "ifnull": "coalesce"}.get(name, name)
    values = tuple(each.expression for each in arguments)
    families = [each.family for each in arguments]
    call = Call(name, values)
    if name == "concat" and families:
        if not all(_is_text_of_concat(each) for each in arguments):
            raise NotComputableError("its expression converts a value to a text")
        both = frozenset().union(*(each.charsets for each in arguments))
        return _Typed(call, "text", charsets=both)
    if name == "coalesce" and families:
        return replace(_united(arguments), expression=call)
    if name == "if" and len(families) == 3:  # noqa: PLR2004  # its arguments
        _expect_numbers(arguments[0])
        return replace(_united(arguments[1:]), expression=call)
    if name == "mod" and len(families) == 2:  # noqa: PLR2004
        return _calculated(name, *arguments)
    if name == "left" and families == ["text", "number"]:
        count = values[1]
        if not (isinstance(count, Constant) and isinstance(count.value, int)):
            raise NotComputableError("its expression has LEFT of no fixed length")
        return replace(arguments[0], expression=call)
    return _part_of_time(call, families)


def _part_of_time(call: Call, families: list[str]) -> _Typed:
    """Return the result of a function of a date or a time."""
    name = call.function
    is_time = families == ["datetime"]
    if (name in _DATE_PARTS and (is_time or families == ["date"])) or (
        name in _TIME_PARTS and is_time
    ):
        return _number(call)
    if name == "date" and is_time:
        return _Typed(call, "date")
    raise NotComputableError(f"its expression has {name[:40]}(), which is not computed")


def _is_text_of_concat(value: _Typed) -> bool:
    return value.family in ("text", "null") or (
        value.family == "number" and not value.is_decimal
    )


_DATE_PARTS: Final = ("year", "month", "day", "quarter", "dayofyear")
_TIME_PARTS: Final = ("hour", "minute", "second")


def _base(column: ColumnMeta) -> str:
    base = re.split(r"[( ]", column.mysql_type.lower(), maxsplit=1)[0]
    return {"integer": "int"}.get(base, base)


def _precision(column: ColumnMeta) -> tuple[int, int]:
    found = _ARGUMENTS.search(column.mysql_type)
    return (int(found[1]), int(found[2] or 0)) if found else (10, 0)

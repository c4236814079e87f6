"""What the type of a column means for its values in messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from fix_random import longer

from canal_server.queues.forms.column_traits import Traits, traits_of

if TYPE_CHECKING:
    import random

VARCHAR, BIGINT, BLOB, REAL = 12, -5, 2004, 7  # of java.sql.Types


@pytest.mark.parametrize(
    ("mysql_type", "expected"),
    [
        ("tinyint(1)", ("integer", 8, False)),
        ("smallint(5) unsigned zerofill", ("integer", 16, True)),
        ("MEDIUMINT", ("integer", 24, False)),
        ("bigint unsigned", ("integer", 64, True)),
        ("serial", ("integer", 64, True)),
        ("decimal", ("decimal", 10, 0)),
        ("decimal(12,2)", ("decimal", 12, 2)),
        ("decimal(99,50)", ("decimal", 65, 38)),
        ("decimal(3,9)", ("decimal", 3, 3)),
        ("numeric(5,1)", ("decimal", 5, 1)),
        ("float", ("float", 0, False)),
        ("float(30)", ("float", 30, False)),
        ("float(7,2)", ("float", 7, True)),
        ("double(7,2)", ("double", 7, 0)),
        ("bit", ("bit", 1, 0)),
        ("bit(9)", ("bit", 9, 0)),
        ("datetime(6)", ("datetime", 6, 0)),
        ("timestamp", ("timestamp", 0, 0)),
        ("enum('a,1','b')", ("enum", 0, 0)),
        ("point", ("geometry", True, 0)),
        ("geomcollection", ("geometry", False, 0)),
        ("varbinary(20)", ("bytes", 20, 0)),
        ("varchar(20)", ("text", 20, 0)),
        ("inet6", ("text", 0, 0)),
    ],
)
def test_types(mysql_type: str, expected: Traits) -> None:
    """Each type has the kind and the sizes that forms need; unknown ones are texts."""
    assert traits_of(mysql_type, VARCHAR) == Traits(*expected)


@pytest.mark.parametrize(
    ("sql_type", "kind"),
    [(BIGINT, "integer"), (REAL, "float"), (BLOB, "bytes"), (VARCHAR, "text")],
)
def test_without_a_type(sql_type: int, kind: str) -> None:
    """The type of JDBC counts only where there is no other one."""
    assert traits_of("", sql_type).kind == kind
    assert traits_of("int", sql_type).kind == "integer"


def test_any_text(rng: random.Random) -> None:
    """Whatever a type is, it has a kind, and sizes within the limits of the types."""
    words = "int", "decimal", "bit", "float", "(", ")", ",", "'", "7", "99999", " ", "ü"
    for _ in range(longer(2_000)):
        text = "".join(rng.choices(words, k=rng.randint(0, 9)))
        found = traits_of(text, rng.randint(-10, 2010))
        assert found.kind
        if found.kind == "decimal":
            assert 0 <= found.b <= min(found.a, 38) <= found.a <= 65

"""Values in the forms that a rule's `types` ask for: copied, followed, verified."""

from __future__ import annotations

import struct
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from fix_mirror_process import by_key

if TYPE_CHECKING:
    from fix_mirror_process import MirrorProcess

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(0)]

FORMS = {"geometry": "wkb", "vector": "array", "bit64": "unsigned"}
SHAPES = (
    "POINT(1 2)",
    "LINESTRING(0 0, 1 1, 2 0)",
    "POLYGON((0 0, 0 9, 9 9, 0 0), (1 2, 1 3, 2 3, 1 2))",
    "MULTIPOINT((1 2), (3 4))",
    "GEOMETRYCOLLECTION(POINT(7 8), LINESTRING(0 0, 1 1))",
)
HIGHEST = (1 << 64) - 1
# By the flavour: a type, and what makes a vector of a text. Not every MariaDB has
# VECTOR: there, a type that stays as it is.
VECTORS = {
    "mysql": ("VECTOR(3)", "STRING_TO_VECTOR"),
    "mariadb": ("VARBINARY(30)", "CONCAT"),
}
PLAIN = ("id", "n")  # the other columns are of the types in question
COLUMNS = "g GEOMETRY, v {}, b BIT(64)"


class Source:
    """The tables of a mirror's schema, with values of the types in question."""

    def __init__(self, mirror: MirrorProcess) -> None:
        self.mirror = mirror
        self.type, self.make = VECTORS[mirror.source.flavour]

    def run(self, *statements: str) -> None:
        """Run statements in the schema."""
        schema = self.mirror.pipeline.schema
        self.mirror.source.execute(f"USE {schema}", *statements)

    def values(self, number: int) -> str:
        """Return the values of a row's columns; some of them are NULL."""
        shape = SHAPES[number % len(SHAPES)]
        srid = (0, 3857)[number % 2]
        g = f"ST_GeomFromText('{shape}', {srid})" if number % 7 else "NULL"
        v = f"{self.make}('[{number}.5,-0.25,{number % 3}]')"
        b = f"{HIGHEST - number}" if number % 2 else f"{number}"
        return f"{g}, {v if number % 5 else 'NULL'}, {b if number % 9 else 'NULL'}"

    def rows(
        self, table: str, key: str = "", *, is_converted: bool = True
    ) -> dict[Any, Any]:
        """Return the rows of a table as the lake is to have them."""
        with self.mirror.source.connect(database=self.mirror.pipeline.schema) as opened:
            cursor = opened.cursor()
            cursor.execute(f"SHOW COLUMNS FROM {table}")
            names = [each[0] for each in cursor.fetchall()]
            # In hexadecimal, as the driver does not know VECTOR.
            shown = (name if name in PLAIN else f"HEX({name})" for name in names)
            cursor.execute(f"SELECT {', '.join(shown)} FROM {table}")
            found = [dict(zip(names, row, strict=True)) for row in cursor]
        rows = [_as_bytes(row) for row in found]
        if is_converted:
            rows = [_converted(row, self.mirror.source.flavour) for row in rows]
        return by_key(rows, (key,) if key else ())

    def agree(self, **keys: str) -> None:
        """Wait until tables are in the lake as the database has them."""
        for table, key in keys.items():
            folder = self.mirror.path / self.mirror.pipeline.schema / table

            def is_equal(table: str = table, key: str = key) -> bool:
                there = self.mirror.lake(table, *([key] if key else []))
                return there == self.rows(table, key)

            self.mirror.wait_for(is_equal, f"{folder}")


def _as_bytes(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row whose values are the bytes of the database."""
    return {
        name: value if name in PLAIN or value is None else bytes.fromhex(_even(value))
        for name, value in row.items()
    }


def _even(digits: str) -> str:
    return digits.zfill(len(digits) + len(digits) % 2)


def _converted(row: dict[str, Any], flavour: str) -> dict[str, Any]:
    """Return a row in the forms of the lake, computed value by value."""
    found: dict[str, Any] = {}
    for name, value in row.items():
        if name[0] in "gs":
            known = value is not None
            found[name] = value[4:] if known else None
            found[f"{name}_srid"] = struct.unpack("<I", value[:4])[0] if known else None
        elif name[0] == "v" and value is not None and flavour == "mysql":
            found[name] = [*struct.unpack(f"<{len(value) // 4}f", value)]
        elif name[0] == "b" and value is not None:
            found[name] = Decimal(int.from_bytes(value, "big"))
        else:
            found[name] = value
    return found


def test_other_forms(mirror: MirrorProcess) -> None:
    """Copies, changes and DDL give equal values, which verify finds equal, too.

    Without the setting, the table is copied again, and has the bytes of the database.
    """
    source = Source(mirror)
    schema = mirror.pipeline.schema
    mirror.settings["tables"] = [{"match": rf"{schema}\..*", "types": FORMS}]
    columns = COLUMNS.format(source.type)
    source.run(
        f"CREATE TABLE keyed (id INT PRIMARY KEY, {columns})",
        f"CREATE TABLE bag ({columns}, n INT)",
        *(f"INSERT INTO keyed VALUES ({n}, {source.values(n)})" for n in range(40)),
        *(f"INSERT INTO bag VALUES ({source.values(n % 6)}, 1)" for n in range(20)),
    )
    mirror.start()
    source.agree(keyed="id", bag="")
    source.run(
        f"INSERT INTO keyed VALUES (50, {source.values(51)})",
        f"INSERT INTO keyed VALUES (51, {source.values(70)})",
        "UPDATE keyed SET g = ST_GeomFromText('POINT(40 9)', 4326) WHERE id < 9",
        "UPDATE keyed SET b = ~0 WHERE id < 9",
        f"UPDATE keyed SET v = {source.make}('[1,2,3]'), g = NULL WHERE id = 11",
        "DELETE FROM keyed WHERE id BETWEEN 20 AND 29",
        "DELETE FROM bag WHERE b = 2 LIMIT 1",
        "UPDATE bag SET b = ~0 WHERE b = 4 LIMIT 2",
        f"INSERT INTO bag VALUES ({source.values(3)}, 2)",
    )
    source.agree(keyed="id", bag="")
    # MySQL reads the latitude first, and stores the longitude first.
    point = mirror.lake("keyed", "id")[(1,)]["g"]
    stored = (9.0, 40.0) if mirror.source.flavour == "mysql" else (40.0, 9.0)
    assert struct.unpack("<2d", point[5:]) == stored
    source.run(
        "ALTER TABLE keyed ADD s2 POINT, ADD b2 BIT(64) NOT NULL DEFAULT b'101'",
        "ALTER TABLE keyed CHANGE g shape GEOMETRY",
        "UPDATE keyed SET s2 = ST_GeomFromText('POINT(1 2)'), b2 = ~0 WHERE id > 30",
        "ALTER TABLE bag DROP g",
    )
    source.agree(keyed="id", bag="")
    assert mirror.state("keyed")["copies"] == mirror.state("bag")["copies"] == 1
    tables = (f"{schema}.keyed", f"{schema}.bag")
    done = mirror.command("verify", *tables)
    assert done.returncode == 0, done.stdout + done.stderr

    source.run("ALTER TABLE keyed MODIFY s2 GEOMETRY")
    mirror.wait_for(lambda: mirror.state("keyed")["copies"] == 2, "another copy")
    source.agree(keyed="id")

    mirror.stop()
    mirror.settings["tables"] = [{"match": rf"{schema}\..*"}]
    mirror.start()
    mirror.wait_for(lambda: mirror.state("bag")["copies"] == 2, "a copy of all")
    expected = source.rows("keyed", "id", is_converted=False)

    def is_plain() -> bool:
        rows = mirror.lake("keyed", "id")
        signed = {key: row["b2"] for key, row in rows.items()}
        return {
            key: {**row, "b2": expected[key]["b2"], "b": expected[key]["b"]}
            for key, row in rows.items()
        } == expected and set(signed.values()) == {5, -1}

    mirror.wait_for(is_plain, "the bytes of the database")
    mirror.stop()

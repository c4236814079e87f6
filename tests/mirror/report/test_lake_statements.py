"""`mirror sql`: what an engine reads by the names of the statements is the lake's."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

pytest.importorskip("deltalake", reason="the extra `mirror` is not installed")
pytest.importorskip("yaml", reason="the extra `mirror` is not installed")

from deltalake import write_deltalake
from duckdb_reader import duckdb_with
from fix_lake import COPY, LakeRows, lake_table, published, write_copy

from canal_server import cli
from canal_server.errors import ConfigError
from canal_server.mirror.lake.lake_storage import open_folder
from canal_server.mirror.report.engine_dialects import DIALECTS
from canal_server.mirror.report.lake_statements import Union, statements
from canal_server.mirror.settings.settings_file import read
from canal_server.mirror.settings.table_values import TableName
from canal_server.mirror.state.lake_tables import lake_schema, open_table
from canal_server.mirror.state.state import Phase, States, TableState

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from pathlib import Path

    from canal_server.mirror.settings.mirror_settings import MirrorSettings

ODD = 'it\'s a "table"'
WRONG_SETTINGS = 2
IDS = {"id": [1, 2]}


class Mirrors:
    """Mirrors with tables of two rows."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def mirror(self, name: str, *, form: str = "delta", **lake: Any) -> MirrorSettings:
        """Return the settings of a mirror with a lake of its own."""
        fields = {
            "name": name,
            "canal": {"servers": "127.0.0.1:1", "destination": "example"},
            "source": {"host": "127.0.0.1", "port": 1, "user": "u", "password": "p"},
            "lake": {"path": str(self.folder / name), "format": form} | lake,
            "tables": [{"match": r".*\..*", "to": "{schema}/{table}"}],
        }
        text = json.dumps(fields)  # JSON is YAML
        (self.folder / f"{name}.yml").write_text(text)
        return read(text, "mirror.yml", {})

    @staticmethod
    def know(settings: MirrorSettings, name: str, phase: Phase) -> TableState:
        """Add a table to the mirror's states."""
        source = TableName(*name.split(".", 1))
        target = f"{source.schema}/{source.table.encode().hex()}"
        state = TableState(source, target, phase, copies=1)
        return States(open_folder(settings.lake, settings.folder)).write(state)

    def add(
        self,
        settings: MirrorSettings,
        name: str,
        columns: dict[str, Any],
        phase: Phase = Phase.FOLLOWING,
    ) -> None:
        """Add a Delta table."""
        state = self.know(settings, name, phase)
        path = f"{settings.lake.path}/{state.target}"
        write_deltalake(path, pa.table(columns))


@pytest.fixture
def mirrors(tmp_path: Path) -> Mirrors:
    """Give mirrors in a folder."""
    return Mirrors(tmp_path)


def sql(
    engine: str, *mirrors: MirrorSettings, name: str = "", union: str = "",
    catalog: str = "",
) -> list[str]:  # fmt: skip
    """Return the lines of the command."""
    lines = statements(
        mirrors,
        DIALECTS[engine](catalog),
        template=name or "{schema}.{table}",
        unions=[Union.read(union)] if union else (),
    )
    return "\n".join(lines).splitlines()


def without_loading(lines: list[str]) -> str:
    """Return statements for a DuckDB that has its extensions already."""
    kept = [line for line in lines if not line.startswith(("INSTALL", "LOAD"))]
    return "\n".join(kept)


def test_duckdb_reads_them(mirrors: Mirrors, tmp_path: Path) -> None:
    """By name, whatever the name is, in DuckDB's dialect."""
    shop = mirrors.mirror("shop")
    mirrors.add(shop, "shop.orders", IDS | {"v": ["a", None]})
    mirrors.add(shop, f"shop.{ODD}", IDS)
    lines = sql("duckdb", shop)
    with duckdb_with(tmp_path, "delta") as connection:
        connection.execute(without_loading(lines))
        connection.execute(without_loading(lines))  # may be repeated
        found = connection.execute("SELECT * FROM shop.orders ORDER BY id").fetchall()
        quoted = ODD.replace('"', '""')
        odd = connection.execute(f'SELECT * FROM shop."{quoted}"').fetchall()
    assert found == [(1, "a"), (2, None)]
    assert sorted(odd) == [(1,), (2,)]


def test_union_of_mirrors(mirrors: Mirrors, tmp_path: Path) -> None:
    """Rows of several lakes, with the mirror and the table; missing columns are NULL.

    A column has one name, whatever its case, and integers of any width are alike.
    """
    east, west = mirrors.mirror("east"), mirrors.mirror("west")
    mirrors.add(east, "shop.orders", {"id": [1], "v": ["a"]})
    narrow = pa.array([2], pa.int32())
    mirrors.add(west, "shop.orders", {"ID": narrow, "more": [True]})
    mirrors.add(west, "shop.items", {"id": [9]})
    lines = sql(
        "duckdb",
        east,
        west,
        name="{mirror}_{schema}.{table}",
        union=r"all.orders=shop\.orders",
    )
    with duckdb_with(tmp_path, "delta") as connection:
        connection.execute(without_loading(lines))
        rows = connection.execute('SELECT * FROM "all".orders ORDER BY id').fetchall()
        columns = [each[0] for each in connection.description]
        items = connection.execute("SELECT * FROM west_shop.items").fetchall()
    assert columns == ["_mirror", "_table", "id", "v", "more"]
    assert rows == [
        ("east", "shop.orders", 1, "a", None),
        ("west", "shop.orders", 2, None, True),
    ]
    assert items == [(9,)]


def test_union_of_formats(mirrors: Mirrors, tmp_path: Path, rng: random.Random) -> None:
    """One column of the view marks deleted rows, whatever a format's name for it is."""
    pytest.importorskip("pyiceberg", reason="the extra `iceberg` is not installed")
    shops = [mirrors.mirror(form, form=form) for form in ("delta", "iceberg")]
    for shop in shops:
        state = mirrors.know(shop, "shop.t", Phase.FOLLOWING)
        table = lake_table([("id", "int")], ("id",), "soft", shop.name)
        table = replace(table, source=state.source, target=state.target)
        rows = LakeRows(table, rng)
        for number in (1, 2):
            rows.put("insert", {"id": number})
        lake = published(tmp_path / shop.name / state.target, rows)
        changes = rows.as_changes([rows.change("delete", {"id": 1})])
        lake.apply(COPY, changes, rows.seq + 1, {})
    lines = sql(
        "duckdb", *shops, name="{mirror}.{table}", union=r"all.t=shop\.t"
    )  # fmt: skip
    with duckdb_with(tmp_path, "delta", "avro", "iceberg") as connection:
        connection.execute(without_loading(lines))
        query = 'SELECT _mirror, id FROM "all".t WHERE _deleted ORDER BY 1'
        assert connection.execute(query).fetchall() == [("delta", 1), ("iceberg", 1)]
        query = "SELECT id FROM iceberg.t WHERE NOT _is_deleted"
        assert connection.execute(query).fetchall() == [(2,)]


def test_clickhouse_reads_them(
    mirrors: Mirrors, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same by ClickHouse, with new columns when the statements run again."""
    monkeypatch.chdir(tmp_path)  # of which it reads files
    session = pytest.importorskip("chdb.session", reason="chdb is not installed")
    east, west = mirrors.mirror("east"), mirrors.mirror("west")
    mirrors.add(east, f"shop.{ODD}`\\", {"id": [1], "v": ["a"]})
    mirrors.add(west, "shop.orders", {"id": [2]})
    with session.Session() as clickhouse:
        lines = sql("clickhouse", east, west, union=r"all.rows=shop\..*")
        for statement in "\n".join(lines).split(";"):
            clickhouse.query(statement)
        query = "SELECT * FROM `all`.`rows` ORDER BY id FORMAT TSV"
        found = str(clickhouse.query(query)).splitlines()
        assert [line.split("\t")[0] for line in found] == ["east", "west"]
        path = f"{west.lake.path}/shop/{b'orders'.hex()}"
        write_deltalake(
            path, pa.table({"id": [3], "n": [7]}), mode="append", schema_mode="merge"
        )
        for statement in "\n".join(sql("clickhouse", west)).split(";"):
            clickhouse.query(statement)
        total = str(clickhouse.query("SELECT sum(n) FROM shop.orders FORMAT TSV"))
    assert total.strip() == "7"


@pytest.mark.parametrize("form", ["parquet", "json"])
def test_logs(
    mirrors: Mirrors, tmp_path: Path, rng: random.Random, form: str
) -> None:  # fmt: skip
    """A log has all changes, also those before a column was added."""
    shop = mirrors.mirror("shop", form=form)
    state = mirrors.know(shop, "shop.t", Phase.FOLLOWING)
    table = lake_table([("id", "int"), ("v", "varchar(20)")], ("id",), "hard")
    table = replace(table, form=form, source=state.source, target=state.target)
    rows = LakeRows(table, rng)
    lake = open_table(shop, table)
    folder = tmp_path / "shop" / state.target
    files = write_copy(folder, rows.as_changes([]).select([]))
    lake.publish(COPY, lake_schema(table), files, rows.seq + 1, {})
    changes = rows.as_changes(rows.random_changes(20))
    lake.apply(COPY, changes, rows.seq + 1, {})
    with duckdb_with(tmp_path) as connection:
        connection.execute("\n".join(sql("duckdb", shop)))
        found = connection.execute("SELECT count(*) FROM shop.t").fetchall()
    assert found == [(sum(len(batch) for batch in lake.scan()),)]
    assert found[0][0] >= len(changes)


def test_statements_of_engines(mirrors: Mirrors) -> None:
    """Each engine has its own statement, and refuses some names."""
    shop = mirrors.mirror("shop")
    mirrors.add(shop, "shop.my-orders", IDS)
    folder = f"{shop.lake.path}/shop/{b'my-orders'.hex()}"
    assert sql("spark", shop)[1:] == [
        "CREATE SCHEMA IF NOT EXISTS `shop`;",
        (
            "CREATE TABLE IF NOT EXISTS `shop`.`my_orders` USING delta LOCATION "
            f"'{folder}';"
        ),
    ]
    assert sql("trino", shop, catalog="lake")[1:] == [
        'CREATE SCHEMA IF NOT EXISTS "lake"."shop";',
        (
            "CALL \"lake\".system.register_table(schema_name => 'shop', table_name => "
            f"'my_orders', table_location => 'local://{folder}');"
        ),
    ]
    assert sql("clickhouse", shop)[1:] == [
        "CREATE DATABASE IF NOT EXISTS `shop`;",
        (
            "CREATE OR REPLACE TABLE `shop`.`my-orders` ENGINE = "
            f"DeltaLakeLocal('{folder}');"
        ),
    ]


def test_tables_that_are_not_there(mirrors: Mirrors) -> None:
    """A comment names tables that have no copy yet; dropped ones still have theirs.

    A comment has one line, whatever the table's name is.
    """
    shop = mirrors.mirror("shop")
    mirrors.know(shop, "shop.new", Phase.COPYING)
    mirrors.know(shop, "shop.odd\nDROP TABLE x; --", Phase.COPYING)
    mirrors.add(shop, "shop.old", IDS, Phase.DROPPED)
    lines = sql("duckdb", shop)
    assert "-- shop.new: the lake does not have it yet" in lines
    assert "-- shop.odd DROP TABLE x; --: the lake does not have it yet" in lines
    assert any('"shop"."old"' in line for line in lines)


def test_wrong_options(mirrors: Mirrors) -> None:
    """Names that clash, types that differ, and expressions that are none."""
    east, west = mirrors.mirror("east"), mirrors.mirror("west")
    mirrors.add(east, "shop.orders", {"id": [1]})
    mirrors.add(west, "shop.orders", {"id": ["1"]})
    apart = "{mirror}.{table}"

    def problem(**options: str) -> str:
        with pytest.raises(ConfigError) as raised:
            sql("duckdb", east, west, **options)
        return str(raised.value)

    assert "would both be named shop.orders" in problem()
    both = problem(name=apart, union="all.o=shop.orders")
    assert "column id is int64 in shop.orders of mirror east and string" in both
    assert "east.orders: shop.orders of mirror east" in problem(
        name=apart, union="east.orders=x"
    )
    assert "no table of the lake matches" in problem(name=apart, union="all.o=x")
    assert "not a regular expression" in problem(name=apart, union="all.o=(")
    assert "write schema.view=expression" in problem(name=apart, union="all=x")
    assert "{source} is unknown" in problem(name="{source}.{table}")
    assert "write schema.table" in problem(name="orders")


def test_command(mirrors: Mirrors, capsys: pytest.CaptureFixture[str]) -> None:
    """The command prints them for several files, and refuses wrong options."""
    east, west = mirrors.mirror("east"), mirrors.mirror("west")
    mirrors.add(east, "shop.a", IDS)
    mirrors.add(west, "shop.b", IDS)
    run: Callable[..., int] = lambda *more: cli.main(  # noqa: E731  # short
        ["mirror", "sql", "--conf", str(mirrors.folder / "east.yml"), *more]
    )
    files = ("--with", str(mirrors.folder / "west.yml"))
    assert run("--engine", "spark", *files, "--union", r"all.x=shop\..") == 0
    printed = capsys.readouterr().out
    assert printed.startswith("-- Spark: tables of east, west\n")
    assert "FROM `shop`.`a`\nUNION ALL\n" in printed
    assert run("--engine", "spark", "--union", "x") == WRONG_SETTINGS
    assert "write schema.view=expression" in capsys.readouterr().err


def test_iceberg_in_a_catalog(mirrors: Mirrors, tmp_path: Path) -> None:
    """Tables of a catalog need no statement; views need its name in the engine."""
    pytest.importorskip("pyiceberg", reason="the extra `iceberg` is not installed")
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db"}
    shop = mirrors.mirror("shop", form="iceberg", catalog=catalog)
    state = mirrors.know(shop, "shop.t", Phase.FOLLOWING)
    table = replace(
        lake_table([("id", "int")], ("id",), "hard"),
        form="iceberg",
        source=state.source,
        target=state.target,
    )
    open_table(shop, table).publish(COPY, lake_schema(table), [], 1, {})
    name = b"t".hex()
    line = f"-- shop.t: the Iceberg catalog has it as shop.{name}"
    assert line in sql("trino", shop)
    view = sql("trino", shop, union="all.t=.*", catalog="ice")
    assert f'FROM "ice"."shop"."{name}";' in view
    with pytest.raises(ConfigError, match="--catalog says by which name"):
        sql("duckdb", shop, union="all.t=.*")


def test_iceberg_folders(mirrors: Mirrors, tmp_path: Path) -> None:
    """Without a catalog, DuckDB opens the folder, and others say what they need."""
    pytest.importorskip("pyiceberg", reason="the extra `iceberg` is not installed")
    shop = mirrors.mirror("shop", form="iceberg")
    state = mirrors.know(shop, "shop.t", Phase.FOLLOWING)
    table = replace(
        lake_table([("id", "int")], ("id",), "hard"),
        form="iceberg",
        source=state.source,
        target=state.target,
    )
    open_table(shop, table).publish(COPY, lake_schema(table), [], 1, {})
    with duckdb_with(tmp_path, "avro", "iceberg") as connection:
        connection.execute(without_loading(sql("duckdb", shop)))
        assert connection.execute("SELECT * FROM shop.t").fetchall() == []
    assert any("shop.t: Spark needs a catalog" in line for line in sql("spark", shop))
    assert any("only through a catalog" in line for line in sql("trino", shop))
    with pytest.raises(ConfigError, match="Spark needs a catalog"):
        sql("spark", shop, union="all.t=.*")

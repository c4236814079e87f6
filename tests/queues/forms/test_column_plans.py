"""How columns are written follows from their names and types, which may change."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from fix_random import longer
from row_rules import body_of, table_entry

from canal_server.errors import ProtocolError
from canal_server.protocol.protobuf import encode
from canal_server.queues.forms.maxwell_rows import MaxwellRows
from canal_server.queues.table_routes import Route

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping

COLUMNS_MAX = 4096  # of a table
WRITTEN: dict[str, Any] = {"int": 7, "varchar(9)": "7", "decimal(5,1)": 7.0}


def form() -> MaxwellRows:
    """Return what makes messages with keys."""
    return MaxwellRows(lambda *_: Route("x"), has_keys=True)


def data_of(maxwell: MaxwellRows, columns: Mapping[str, tuple[str, str | None]]) -> Any:
    """Return the row that a message has, and its key."""
    ((_, _, value, key, _),) = maxwell.convert(1, body_of(table_entry(columns)), 2)
    assert value is not None
    return json.loads(value)["data"], json.loads(key or b"{}")


def test_changes_of_columns(rng: random.Random) -> None:
    """A row is written by the columns of its time, whatever those before it were."""
    maxwell = form()
    for _ in range(longer(300)):
        names = ["id", *rng.sample(("a", "b", "A", "ü", 'a"b'), rng.randint(0, 5))]
        rng.shuffle(names)
        types = {name: rng.choice(tuple(WRITTEN)) for name in names}
        data, key = data_of(maxwell, {name: (types[name], "7") for name in names})
        assert data == {name: WRITTEN[types[name]] for name in names}
        assert key == {
            "database": "shop",
            "table": "orders",
            f"pk.{names[0].lower()}": WRITTEN[types[names[0]]],
        }


def test_tables_do_not_share_columns() -> None:
    """Two tables have columns of one name with other types."""
    entries = [
        table_entry({"id": (mysql_type, "7")}, table_name=name)
        for name, mysql_type in (("a", "int"), ("b", "varchar(9)"), ("a", "int"))
    ]
    found = form().convert(1, body_of(*entries), 2)
    data = [json.loads(each[2] or b"")["data"] for each in found]
    assert data == [{"id": 7}, {"id": "7"}, {"id": 7}]


def test_many_earlier_columns() -> None:
    """A table that has had very many columns is looked at anew, and stays right."""
    maxwell = form()
    for number in range(COLUMNS_MAX // 400 * 3):
        columns = {f"c{number}_{at}": ("int", str(at)) for at in range(400)}
        data, _ = data_of(maxwell, columns)
        assert data == {name: int(text or "") for name, (_, text) in columns.items()}


def test_too_many_columns() -> None:
    """More than a table can have are refused, and the next batch is not."""
    maxwell = form()
    columns: dict[str, tuple[str, str | None]] = {
        f"c{at}": ("int", "1") for at in range(COLUMNS_MAX + 1)
    }
    with pytest.raises(ProtocolError, match=f"more than {COLUMNS_MAX} columns"):
        data_of(maxwell, columns)
    del columns["c0"]
    assert len(data_of(maxwell, columns)[0]) == COLUMNS_MAX
    assert data_of(maxwell, {"a": ("int", "1")})[0] == {"a": 1}


def test_too_many_in_one_entry() -> None:
    """Rows of one entry whose columns all differ are refused as well."""
    entry = table_entry({"id": ("int", "1")})
    change = entry.row_change()
    rows = tuple(
        table_entry({f"c{number}_{at}": ("int", "1") for at in range(COLUMNS_MAX)})
        .row_change()
        .row_datas[0]
        for number in range(3)
    )
    body = body_of(replace_rows(entry, change, rows))
    maxwell = form()
    with pytest.raises(ProtocolError, match=f"more than {2 * COLUMNS_MAX} columns"):
        maxwell.convert(1, body, 2)
    assert data_of(maxwell, {"a": ("int", "1")})[0] == {"a": 1}


def replace_rows(entry: Any, change: Any, rows: tuple[Any, ...]) -> Any:
    """Return an entry with other rows."""
    return replace(entry, store_value=encode(replace(change, row_datas=rows)))

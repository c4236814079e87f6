"""Records the binlogs of `train.py`: what databases write, in a few thousand rows.

    python tools/training/record.py

Needs the private MySQL and MariaDB of `servers.py`. The table maps have all columns, so
that no server is needed to read the files.
"""

from __future__ import annotations

import io
import sys
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from servers import PrivateServer

if TYPE_CHECKING:
    from collections.abc import Iterator

ARCHIVE = Path(__file__).with_name("binlogs.tar.xz")
OPTIONS = ["--binlog-row-metadata=FULL", "--binlog-format=ROW"]
MYSQL = ["--gtid-mode=ON", "--enforce-gtid-consistency=ON"]
SCHEMA = "training"
ROWS = 600  # of each kind
A_STATEMENT = 50  # rows of statements with several
# A row of a shop, which a database writes most, and one with every kind of column.
ITEMS = """CREATE TABLE items (
    id BIGINT UNSIGNED PRIMARY KEY, k INT NOT NULL, name VARCHAR(64) NOT NULL,
    email VARCHAR(128), amount DECIMAL(12, 2), status TINYINT, created DATETIME,
    updated TIMESTAMP NULL, note VARCHAR(255), flag BIT(1)) CHARSET utf8mb4"""
KINDS = """CREATE TABLE kinds (
    id INT AUTO_INCREMENT PRIMARY KEY, small SMALLINT, medium MEDIUMINT UNSIGNED,
    single FLOAT, twice DOUBLE, day DATE, at TIME(3), moment DATETIME(6), y YEAR,
    choice ENUM('a', 'b', 'c'), several SET('x', 'y', 'z'), bits BIT(12),
    fixed CHAR(10), old VARCHAR(40) CHARACTER SET latin1, long_text TEXT,
    bytes VARBINARY(40), large BLOB, document JSON, precise DECIMAL(30, 10))"""


def statements() -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield statements with their arguments, each of which is a transaction."""
    for create in (ITEMS, KINDS):
        yield create, ()
    for key in range(ROWS):
        yield f"INSERT INTO items VALUES {_item(key)}", ()
    for first in range(ROWS, 2 * ROWS, A_STATEMENT):
        rows = ", ".join(_item(key) for key in range(first, first + A_STATEMENT))
        yield f"INSERT INTO items VALUES {rows}", ()
    for key in range(0, ROWS, 2):
        yield "UPDATE items SET status = 4, amount = amount + 1 WHERE id = %s", (key,)
    yield f"UPDATE items SET note = CONCAT(note, '!') WHERE id >= {ROWS}", ()
    for key in range(ROWS // 4):
        yield "DELETE FROM items WHERE id = %s", (key,)
    for key in range(ROWS // 4):
        yield f"INSERT INTO kinds VALUES {_kind(key)}", ()
    yield "UPDATE kinds SET document = JSON_SET(document, '$.n', 1), y = 2000", ()


def _item(key: int) -> str:
    email = "NULL" if key % 10 == 0 else f"'user{key}@example.org'"
    return (
        f"({key}, {key * 7919 % 65536}, 'name-{key}', {email}, {key}.{key % 100:02},"
        f" {key % 5}, '2024-01-01 00:00:{key % 60:02}', '2024-03-01 00:{key % 60:02}',"
        f" 'a note on item number {key}', b'{key % 2}')"
    )


def _kind(key: int) -> str:
    if key % 7 == 0:
        return f"({key + 1}{', NULL' * 18})"
    return (
        f"({key + 1}, {-key}, {key}, {key / 8}, {key / 3:.12f},"
        f" '2023-12-{key % 28 + 1}',"
        f" '-{key % 24}:00:01.{key % 1000:03}', '2024-02-29 12:00:00.{key:06}',"
        f" {1970 + key % 80}, '{'abc'[key % 3]}', 'x,z', b'{key % 4096:b}',"
        f" 'fixed', 'caf\u00e9 {key}', '{'long ' * 40}\u20ac', X'00ff{key % 256:02x}',"
        f' REPEAT(\'z\', 300), \'{{"n": {key}, "list": [1, 2.5, null, "a"]}}\','
        f" {key}.0000000001)"
    )


def record(kind: str, more: list[str]) -> bytes:
    """Return the binlog of the statements on a server of a kind."""
    with PrivateServer(kind, [*OPTIONS, *more]) as server:
        server.execute(f"CREATE DATABASE {SCHEMA}")
        with server.connect(database=SCHEMA, autocommit=True) as connection:
            cursor = connection.cursor()
            cursor.execute("FLUSH BINARY LOGS")
            for statement, arguments in statements():
                cursor.execute(statement, arguments or None)
        file, _ = server.binlog_position()
        server.execute("FLUSH BINARY LOGS")
        return Path(server.data_folder, file).read_bytes()


def main() -> None:
    """Write the archive."""
    with tarfile.open(ARCHIVE, "w:xz") as archive:
        for kind, more in (("mysql", MYSQL), ("mariadb", [])):
            content = record(kind, more)
            member = tarfile.TarInfo(f"{kind}.binlog")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
            print(f"{member.name}: {len(content):,} bytes")
    print(f"{ARCHIVE.name}: {ARCHIVE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()

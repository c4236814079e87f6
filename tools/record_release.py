"""Record a small binlog of a release, with the rows that SELECT shows in the end.

`record_release.py NAME …` writes NAME.tar.xz into tests/golden/releases for each of the
releases (`server_releases`): the whole binlog files of random tables of all its types
with random rows, and of some statements that alter a table; and the rows of all tables
as a client has them. TIMESTAMPs are in UTC.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import sys
import tarfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from random_schema import RandomLoad
from server_folders import Unavailable
from server_releases import RELEASES, release_of
from servers import PrivateServer

if TYPE_CHECKING:
    from collections.abc import Sequence

OUT: Final = Path(__file__).parent.parent / "tests/golden/releases"
SCHEMA: Final = "recorded"
TABLES: Final = 6
STEPS: Final = 40
ALTERED: Final = (
    "CREATE TABLE {s}.item (id INT PRIMARY KEY, name VARCHAR(20))",
    "INSERT INTO {s}.item VALUES (1, 'one'), (2, 'two'), (3, NULL)",
    "ALTER TABLE {s}.item ADD price DECIMAL(8,2) AFTER id",
    "UPDATE {s}.item SET price = 1.5 WHERE id < 3",
    "ALTER TABLE {s}.item CHANGE name title VARCHAR(30), ADD at DATETIME(3)",
    "INSERT INTO {s}.item VALUES (4, NULL, 'four', '2024-02-29 10:00:00.5')",
    "RENAME TABLE {s}.item TO {s}.goods",
    # Every row, so that all have the columns of the end.
    "UPDATE {s}.goods SET price = -id - 0.25, title = CONCAT(IFNULL(title, ''), '!')",
    "UPDATE {s}.goods SET at = '2024-01-01'",
    "DELETE FROM {s}.goods WHERE id = 2",
    "CREATE TABLE {s}.other LIKE {s}.goods",
    "INSERT INTO {s}.other SELECT * FROM {s}.goods",
    "TRUNCATE {s}.other",
    "INSERT INTO {s}.other SELECT * FROM {s}.goods WHERE id = 4",
)
SELECTED: Final = "CAST(id AS CHAR), CAST(price AS CHAR), title, CAST(at AS CHAR)"


def record(name: str, out: Path, seed: int) -> int:
    """Record a release; returns the size of the file. Raises Unavailable."""
    rng = random.Random(seed)
    with PrivateServer(release_of(name).flavour, release=name) as server:
        server.execute(f"CREATE DATABASE {SCHEMA} CHARACTER SET utf8mb4")
        load = RandomLoad(server, SCHEMA, rng, images=("FULL",))
        load.run(tables=TABLES, steps=STEPS)
        server.execute(*(each.format(s=SCHEMA) for each in ALTERED))
        rows = [
            {"table": table, "row": row}
            for table, found in load.truth().items()
            for row in found
        ]
        for table in ("goods", "other"):
            for values in server.execute(f"SELECT {SELECTED} FROM {SCHEMA}.{table}"):
                columns = zip(("id", "price", "title", "at"), values, strict=True)
                rows.append({"table": table, "row": dict(columns)})
        server.execute("FLUSH LOGS")
        logs = [str(log[0]) for log in server.execute("SHOW BINARY LOGS")][:-1]
        ((version,),) = server.execute("SELECT VERSION()")
        files = {log: (server.data_folder / log).read_bytes() for log in logs}
    about = {"release": name, "version": version, "seed": seed}
    files["about.json"] = json.dumps(about, indent=1).encode()
    files["rows.jsonl"] = "".join(
        f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows
    ).encode()
    out.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(out, "w:xz", preset=9) as archive:
        for file, content in files.items():
            entry = tarfile.TarInfo(file)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return out.stat().st_size


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help=f"of {', '.join(RELEASES)}")
    parser.add_argument("--out", type=Path, default=OUT, help="a folder")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    os.environ["TZ"] = "UTC"
    time.tzset()
    missing = 0
    for name in options.names or RELEASES:
        try:
            size = record(name, options.out / f"{name}.tar.xz", options.seed)
            print(f"{name}: {size:,} bytes", flush=True)
        except Unavailable as error:
            missing += 1
            print(f"{name}: unavailable: {error}", file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())

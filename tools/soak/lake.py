"""A mirror of one source as a process, and two comparisons of its lake.

One is the mirror's own `verify`; the other one reads the Delta tables and the source
itself, and knows nothing of how they became equal.
"""

from __future__ import annotations

import json
import time
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from mirror_process import MirrorProcess

from soak.ledger import ID, TX, N, same_document

if TYPE_CHECKING:
    from pathlib import Path

    from soak.sources import Source

TABLES = """\
tables:
  - match: {schema}\\..*
"""
MORE = """\
copy:
  chunk_rows: 100
stream:
  max_rows: 2000
  retry_timeout: 30s
spark:
  spark.master: local[2,3]
  spark.driver.memory: 1g
  spark.driver.extraJavaOptions: -XX:TieredStopAtLevel=1 -XX:+UseSerialGC
"""
LEFT_OUT = ("vector", "geometry")  # which the driver does not read
COLUMNS = (
    "SELECT column_name, data_type FROM information_schema.columns"
    " WHERE table_schema = %s AND table_name = %s"
)
OUTRUN = "changed in the meantime each time"
SETTLE_S = 420.0
LOOK_S = 3.0
# Of these an equal value may look different on both sides: `verify` compares them.
SAME_TYPES = (int, str, bytes, Decimal, datetime, date)


class Lake:
    """The mirror's process, and what its lake has to equal."""

    def __init__(self, folder: Path, source: Source, ports: list[int]) -> None:
        folder.mkdir()
        self._source = source
        account = _Account(source)
        self._mirror = MirrorProcess(
            folder,
            account,
            *(("127.0.0.1", port) for port in ports),
            destination=source.flavour,
            tables=TABLES.format(schema=source.schema),
            more=MORE,
        )
        self._runs = False

    @property
    def pid(self) -> int | None:
        """The process while it runs."""
        return self._mirror.pid if self._runs else None

    def launch(self) -> None:
        """Start it."""
        self._mirror.launch()
        self._runs = True

    def kill(self) -> None:
        """End it and all that it started."""
        self._runs = False
        self._mirror.kill()

    def stop(self) -> int:
        """End it as an operator does; returns its exit status."""
        self._runs = False
        return self._mirror.stop()

    def close(self) -> None:
        """End all."""
        self.kill()

    def ended(self) -> int | None:
        """Return the exit status of a process that ended without being asked to."""
        return self._mirror.ended() if self._runs else None

    def log_end(self) -> str:
        """Return the last lines of its log."""
        return self._mirror.log_end()

    # --- what it has to equal ---------------------------------------------------------

    def settle(self, tables: list[str]) -> str:
        """Wait until all tables follow the stream; returns what did not come."""
        give_up_at = time.monotonic() + SETTLE_S
        while True:
            status, output = self._mirror.run("status", "--json")
            states = {}
            if status == 0:
                shown = json.loads(output)["tables"]
                states = {e["table"]: (e["phase"], e["message"]) for e in shown}
            expected = {f"{self._source.schema}.{name}" for name in tables}
            left = {
                n: states.get(n)
                for n in expected
                if states.get(n, ("", ""))[0] != "following"
            }
            if status == 0 and not left:
                return ""
            outrun = [n for n, state in left.items() if state and OUTRUN in state[1]]
            if outrun:  # by its DDL: a person would have it copied again, too
                self._mirror.run("copy", *outrun)
            if time.monotonic() > give_up_at:
                return f"tables of the mirror do not follow: {left} {output[-400:]}"
            time.sleep(LOOK_S)

    def verify(self, tables: list[str]) -> str:
        """Compare as an operator does; returns what differs."""
        names = [f"{self._source.schema}.{name}" for name in tables]
        status, output = self._mirror.run("verify", *names, "--json")
        if status == 0 and json.loads(output)["equal"]:
            return ""
        return f"mirror verify: status {status}: {output[:3000]}"

    def differences(self, tables: list[str]) -> tuple[list[str], int]:
        """Compare by ourselves; returns what differs, and how many values did not."""
        found, equal = [], 0
        for name in tables:
            lake, truth = self._lake(name), self._truth(name)
            if lake.keys() != truth.keys():
                found.append(
                    f"{name}: {len(lake.keys() - truth.keys())} rows only in the lake, "
                    f"{len(truth.keys() - lake.keys())} only in the source, as "
                    f"{sorted(lake.keys() ^ truth.keys())[:3]}"
                )
            for key in lake.keys() & truth.keys():
                wrong, same = _unlike(lake[key], truth[key])
                equal += same
                found += [f"{name}, row {key}: {each}" for each in wrong[:2]]
        return found, equal

    def _lake(self, table: str) -> dict[tuple[str, ...], dict[str, Any]]:
        from deltalake import DeltaTable  # noqa: PLC0415  # an extra

        folder = self._mirror.lake / self._source.schema / table
        rows = DeltaTable(str(folder)).to_pyarrow_table().to_pylist()
        return {_version(row): row for row in rows}

    def _truth(self, table: str) -> dict[tuple[str, ...], dict[str, Any]]:
        with self._source.now.connect(database=self._source.schema) as connection:
            cursor = connection.cursor()
            cursor.execute("SET time_zone = '+00:00'")
            cursor.execute(COLUMNS, (self._source.schema, table))
            names = [name for name, kind in cursor.fetchall() if kind not in LEFT_OUT]
            quoted = ", ".join("`" + each.replace("`", "``") + "`" for each in names)
            cursor.execute(f"SELECT {quoted} FROM `{table}`")
            rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
        return {_version(row): row for row in rows}


class _Account:
    """How the mirror reaches the server that is written to, whichever that is."""

    def __init__(self, source: Source) -> None:
        self.host, self.port = "127.0.0.1", source.writes.port
        self.user, self.password = source.now.user, source.now.password


def _version(row: dict[str, Any]) -> tuple[str, ...]:
    return tuple(str(row[name]) for name in (ID, TX, N))


def _unlike(lake: dict[str, Any], truth: dict[str, Any]) -> tuple[list[str], int]:
    """Return what differs of a row, and how many values were compared and equal."""
    found, equal = [], 0
    for name, value in truth.items():
        if name not in lake:
            found.append(f"the lake lacks column {name}")
            continue
        has = lake[name]
        if isinstance(has, datetime):
            has = has.replace(tzinfo=None)
        if type(has) is not type(value) or not isinstance(value, SAME_TYPES):
            continue
        if has == value or (
            isinstance(value, str) and same_document(has) == same_document(value)
        ):
            equal += 1
        else:
            found.append(f"{name} is {has!r:.200}, in the source {value!r:.200}")
    return found, equal

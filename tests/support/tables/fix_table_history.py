"""Table histories as a server leaves them, for the commands that look into them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from fix_conf import ACCOUNT

from canal_server import cli
from canal_server.config.load import load
from canal_server.model.positions import EntryPosition
from canal_server.tablemeta.history.ddl_records import made_record
from canal_server.tablemeta.history.tsdb import TableMetaTsdb
from canal_server.tablemeta.model.session_context import Context
from canal_server.tablemeta.storage.history_storage import SourceTraits, StoredSchema
from canal_server.tablemeta.storage.open_storage import open_storage

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
T0_MS = 1_763_719_200_000  # 2025-11-21T10:00:00Z
BOOK = """CREATE TABLE `book` (
  `id` int NOT NULL AUTO_INCREMENT,
  `title` varchar(100) DEFAULT NULL,
  `price` decimal(8,2) DEFAULT NULL,
  PRIMARY KEY (`id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci"""
SHOP = (StoredSchema("shop", "utf8mb4_0900_ai_ci", (("book", BOOK),), ("cheap",)),)
TRAITS = SourceTraits(False, 90700, 0, "utf8mb4_0900_ai_ci")


def position_at(offset: int, file: int = 3, **fields: object) -> EntryPosition:
    """Return a position; its time is as many seconds after T0 as the offset."""
    return EntryPosition(
        f"binlog.{file:06}",
        offset,
        T0_MS + offset * 1000,
        1,
        **fields,  # type: ignore[arg-type]
    )


class WrittenHistory:
    """A destination's history, written as by a server that has ended since."""

    def __init__(self, conf: Path) -> None:
        self.conf = conf
        (config,) = load(conf, {}).instances
        self.storage = open_storage(config)
        self._destination = config.destination

    def write(
        self,
        *statements: tuple[int, str],
        base: tuple[StoredSchema, ...] = SHOP,
        first: int = 157,
        last: int = 1000,
        source: str = UUID,
        contained: tuple[tuple[int, str], ...] = (),
        answers: tuple[tuple[int, str], ...] = (),
    ) -> None:
        """Write one more stretch: its base, statements by offset, and its end."""
        context = Context(thread_id=17, server_version=90700).to_json()
        # Written in the hour of the positions, so that nothing expires.
        tsdb = TableMetaTsdb(self.storage, clock=lambda: T0_MS / 1000 + last)
        tsdb.init(self._destination)
        try:
            segment = tsdb.begin(source, TRAITS, position_at(first), base)
            if contained:
                records = [
                    made_record(
                        position_at(offset), "shop", sql, context, contained=True
                    )
                    for offset, sql in contained
                ]
                segment = tsdb.extend(
                    segment, records, first=position_at(contained[0][0])
                )
            tsdb.rollback(position_at(first), segment)
            for offset, sql in statements:
                at = position_at(offset, gtid=f"{UUID}:{offset}")
                tsdb.apply(made_record(at, "shop", sql, context))
            for offset, text in answers:
                tsdb.load(position_at(offset), "shop", text)
            tsdb.reached(position_at(last))
        finally:
            tsdb.close()


@pytest.fixture
def written_history(make_conf: Callable[..., Path], tmp_path: Path) -> WrittenHistory:
    """Give a conf folder of one destination and a history without content."""
    conf = make_conf(
        example=f"canal.instance.master.address = 127.0.0.1:1\n{ACCOUNT}"
        f"canal.instance.tsdb.dir = {tmp_path}/tsdb\n"
    )
    return WrittenHistory(conf)


class SchemaCommand:
    """`canal-server schema …` on a conf folder, and what it printed."""

    def __init__(self, conf: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._conf = conf
        self._capsys = capsys
        self.out = self.err = ""

    def __call__(self, action: str, *options: str, status: int = 0) -> str:
        """Run it; fails when it does not end with the status."""
        self._capsys.readouterr()
        found = cli.main(["schema", action, "--conf", str(self._conf), *options])
        self.out, self.err = self._capsys.readouterr()
        assert found == status, self.err
        return self.out

    def objects(self, action: str, *options: str) -> list[dict[str, object]]:
        """Run it with `--format json`; return what it printed."""
        out = self(action, *options, "--format", "json")
        return [json.loads(line) for line in out.splitlines()]


@pytest.fixture
def schema(
    written_history: WrittenHistory, capsys: pytest.CaptureFixture[str]
) -> SchemaCommand:
    """Give the command on the written history."""
    return SchemaCommand(written_history.conf, capsys)

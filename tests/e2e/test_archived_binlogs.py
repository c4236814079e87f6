"""Binlog files that the source has purged are read from an archive, then the source."""

from __future__ import annotations

import threading

import pytest
from binlog_archiver import archive
from binlog_bytes import GTID, MARIA_GTID
from fix_random import longer
from load import Load, allow_from, receive_until_broken, stored_cursor

from canal_server import cli

FLAVOURS = ["mysql", "mariadb"]
# Passes over a client that is away.
SMALL_RING = {
    "canal.instance.cursor.pin.seconds": 0,
    "canal.instance.memory.buffer.size": 64,
    "canal.instance.transaction.size": 16,
}


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("gtid", [False, True], ids=["file", "gtid"])
def test_archive_then_source(make_archived, *, flavour, gtid):
    """What was purged comes from the archive, the rest from the source, each once.

    Acks are those of the binlog: a restart continues without the archive.
    """
    made = make_archived(flavour, gtid=gtid)
    made.write_files(3)
    archive(made.source, made.folder)
    made.write_files(2)
    made.pipeline.start()
    made.receive()
    made.writer.write(5)
    made.receive()
    made.pipeline.stop()
    for each in made.folder.iterdir():
        each.unlink()
    done = made.checker.done
    made.checker.resume(done, done)
    made.writer.write(5)
    made.pipeline.start()
    made.receive()
    assert made.checker.done == len(made.writer.transactions)
    assert made.checker.repeated == 0


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("gtid", [False, True], ids=["file", "gtid"])
def test_killed(make_archived, rng, *, flavour, gtid):
    """Kills amid the archive and amid the change to the source lose and double nothing.

    Meanwhile the source is written to, and purges more.
    """
    made = make_archived(flavour, gtid=gtid)
    pipeline, checker = made.pipeline, made.checker
    pipeline.configure({"canal.file.flush.period": 20})
    made.write_files(8, transactions=rng.randint(10, 30))
    archive(made.source, made.folder)
    pipeline.start()
    with Load(made.writer, 0.02):
        for _ in range(longer(4)):
            killer = threading.Timer(rng.uniform(0.3, 1.5), pipeline.kill)
            killer.start()
            receive_until_broken(pipeline, checker, rng)
            killer.join()
            print(f"killed with {checker.done} of {len(made.writer.transactions)}")
            allow_from(stored_cursor(pipeline), checker)
            archive(made.source, made.folder)
            pipeline.start()
    made.receive()
    assert checker.done == len(made.writer.transactions)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_statements(make_archived, flavour):
    """Rows have the columns of their time, though tables changed in the archive.

    A table that was dropped since is known from its statements as well.
    """
    made = make_archived(flavour)
    table = "shop.changing"
    made.source.execute(
        f"CREATE TABLE {table} (id INT PRIMARY KEY)",
        f"INSERT INTO {table} VALUES (1)",
        "FLUSH BINARY LOGS",
        f"ALTER TABLE {table} ADD COLUMN name VARCHAR(9) FIRST",
        f"INSERT INTO {table} VALUES ('two', 2)",
        "FLUSH BINARY LOGS",
        f"ALTER TABLE {table} RENAME COLUMN name TO label",
        f"INSERT INTO {table} VALUES ('three', 3)",
        f"DROP TABLE {table}",
    )
    archive(made.source, made.folder)
    made.pipeline.start()
    with made.pipeline.client() as client:
        # MariaDB's binlog has the statements of rows, too.
        expected = 10 if flavour == "mariadb" else 7
        changes = [each.row_change() for each in made.pipeline.rows(client, expected)]
    rows = [dict(each.row_datas[0].after) for each in changes if each.row_datas]
    assert rows == [
        {"id": "1"},
        {"name": "two", "id": "2"},
        {"label": "three", "id": "3"},
    ]


@pytest.mark.parametrize(
    ("flavour", "options"),
    [
        ("mysql", ("--binlog-transaction-compression=ON",)),
        ("mysql", ("--binlog-checksum=NONE",)),
        ("mariadb", ("--log-bin-compress=ON", "--log-bin-compress-min-len=10")),
        ("mariadb", ("--binlog-checksum=NONE",)),
    ],
    ids=["mysql-compressed", "mysql-plain", "mariadb-compressed", "mariadb-plain"],
)
def test_events_of_all_kinds(make_archived, flavour, options):
    """Compressed transactions, and binlogs without checksums, are read as well."""
    made = make_archived(flavour, options=options)
    made.write_files(2)
    made.writer.write(1, rows=500)
    archive(made.source, made.folder)
    made.writer.write(5)
    if "compression" in options[0]:
        # All of a compressed transaction is at one position, which is sent again.
        made.checker.resume(4, 5)
    made.pipeline.start()
    made.receive()
    assert made.checker.done == len(made.writer.transactions)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_oldest(make_archived, flavour):
    """The position `oldest` is the first file of the archive, also by its time."""
    made = make_archived(flavour)
    made.write_files(2)
    archive(made.source, made.folder)
    made.pipeline.meta_file.unlink()
    made.pipeline.configure(
        {
            "canal.instance.master.journal.name": "oldest",
            "canal.instance.master.position": None,
        }
    )
    made.checker.resume(0, 0)
    made.pipeline.start()
    made.receive()


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_damage(make_archived, flavour):
    """A missing, truncated, damaged or unfinished file is an error that names it.

    Nothing after it is delivered. Once the file is replaced, reading continues by
    itself, and nothing is lost.
    """
    made = make_archived(flavour)
    pipeline = made.pipeline
    made.write_files(3)
    names = archive(made.source, made.folder)
    file = made.folder / names[-2]
    intact = file.read_bytes()
    damaged = bytearray(intact)
    damaged[len(intact) // 2] ^= 0xFF
    states = {
        "is truncated: it ends inside of this event": intact[:-40],
        "checksum is wrong|names .* as its end|archived binlog file": bytes(damaged),
        "without the event that closes a file": intact[: last_transaction(intact)],
        "does not start with": b"no binlog" * 9,
        f"lacks {file.name}": None,
    }
    pipeline.start()
    for expected, content in states.items():
        file.unlink(missing_ok=True)
        if content is not None:
            file.write_bytes(content)
        pipeline.stop()
        pipeline.start()
        line = pipeline.process.wait_for_log(f"ERROR .*({expected})")
        assert file.name in line
        pipeline.wait_for_status(lambda status: file.name in status["error"])
    file.write_bytes(intact)
    made.checker.resume(5)
    made.receive()
    assert made.checker.done == len(made.writer.transactions)


def last_transaction(content: bytes) -> int:
    """Return where the last transaction of a binlog file begins, by its GTID event."""
    found, at = 0, 4
    while at < len(content):
        if content[at + 4] in (GTID, MARIA_GTID):
            found = at
        at += int.from_bytes(content[at + 9 : at + 13], "little")
    return found


@pytest.mark.parametrize("gtids", [False, True], ids=["confirmed", "by-gtid"])
def test_crashed_source(make_archived, *, gtids):
    """A file that a crash has left without its closing event is read to its end.

    When the GTIDs say that nothing is missing, or when the operator does.
    """
    options = ("--gtid-mode=ON", "--enforce-gtid-consistency=ON")
    made = make_archived("mysql", options=options if gtids else ("--gtid-mode=OFF",))
    made.writer.write(5)
    made.source.kill()
    made.source.restart()
    made.writer.write(5)
    names = archive(made.source, made.folder)
    made.pipeline.start()
    if not gtids:
        line = made.pipeline.process.wait_for_log("ERROR .* closes a file")
        crashed = next(name for name in names if f"{name} ends" in line)
        (made.folder / f"{crashed}.complete").touch()
    made.checker.resume(5)
    made.receive()
    assert made.checker.done == len(made.writer.transactions)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_lagging_client(make_archived, flavour):
    """A client that was away catches up from the archive while others are served."""
    made = make_archived(flavour)
    pipeline = made.pipeline
    pipeline.configure(SMALL_RING)
    pipeline.start()
    checker = pipeline.checker(made.writer)
    checker.resume(4, 5)
    with pipeline.client(1002) as live:
        for _ in range(3):
            made.write_files(1, transactions=20)
            pipeline.receive(live, checker)
        pipeline.wait_for_status(
            lambda status: not status["late_clients"]["1001"]["in_ring"]
        )
        archive(made.source, made.folder)
        made.writer.write(5)
        pipeline.receive(live, checker)  # first: the ring may have no room for all
        made.receive()
    assert made.checker.done == checker.done == len(made.writer.transactions)


def test_check(make_archived, capsys):
    """`check` says what the archive covers, and what it lacks."""
    made = make_archived("mysql")
    made.write_files(2)
    names = archive(made.source, made.folder)
    assert f"has {names[0]} to {names[-1]} ({len(names)} files)" in checked(
        made, capsys
    )
    (made.folder / names[-1]).unlink()
    found = checked(made, capsys)
    assert f"lacks {names[-1]}, the file before the source's oldest" in found
    assert "FAIL" in found


def checked(made, capsys) -> str:
    """Return the lines of `check` that are about the archive."""
    cli.main(["check", "--conf", str(made.pipeline.conf)])
    lines = capsys.readouterr().out.splitlines()
    return "\n".join(line for line in lines if "archive.dir" in line)

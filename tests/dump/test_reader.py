"""Dump and decode as one: what the engine asks for, and damaged streams."""

from __future__ import annotations

import logging
import struct
import zlib
from typing import TYPE_CHECKING, Any

import binlog_bytes as b
import pytest
import zstandard
from binlog_bytes import Binlog
from byte_source import Bytes
from golden_form import (
    entries_of,
)

from canal_server.config.schema import FilterConfig
from canal_server.core.blocks import BlockPool
from canal_server.core.gtid import GtidSet
from canal_server.core.maria_gtid import MariaGtidSet
from canal_server.core.subjects import Subjects
from canal_server.dump.reader import Reader, StreamEnd
from canal_server.errors import (
    ConnectionLost,
    DecodeError,
    SourceError,
    TableMetaError,
)
from canal_server.lifecycle import Stop
from canal_server.model.entry import EntryType, EventType
from canal_server.model.table import ColumnMeta, TableMeta
from canal_server.sink.columns import ColumnFilter
from canal_server.sink.filters import TableFilter

if TYPE_CHECKING:
    from fix_blocks import Span

    from canal_server.protocol.entries import Entry

INT = (b.LONG, b"")
SID = bytes(range(16))
SID_TEXT = "00010203-0405-0607-0809-0a0b0c0d0e0f"


def columns_of(types: tuple[str, ...]) -> tuple[ColumnMeta, ...]:
    """Return columns named c0, c1 and so on."""
    return tuple(ColumnMeta(f"c{n}", each) for n, each in enumerate(types))


class Images:
    """The port TableImages over a dict, with what was asked of it noted."""

    def __init__(self, **tables: tuple[str, ...]) -> None:
        self.tables = {
            name: TableMeta("db", name, columns_of(types))
            for name, types in tables.items()
        }
        self.fresh: dict[str, TableMeta] = {}
        self.refreshed: list[str] = []
        self.applied: list[tuple[str, str, str]] = []

    def find(self, schema: str, table: str) -> TableMeta | None:
        """Return what is known."""
        return self.tables.get(table)

    def refresh(self, schema: str, table: str) -> TableMeta | None:
        """Look again."""
        self.refreshed.append(table)
        self.tables.update(self.fresh)
        return self.tables.get(table)

    def apply(self, schema: str, ddl: str, position: object) -> None:
        """Note the statement."""
        self.applied.append((schema, ddl, str(position)))


class Reading:
    """A reader over chunks, and what it delivers."""

    def __init__(
        self,
        images: Images | None = None,
        *,
        black: str = "",
        field: str = "",
        **options: object,
    ) -> None:
        self.images = images or Images(t=("int",))
        self.fields = bytearray()
        self.idle = 0
        self.stop = Stop()
        self.subjects = Subjects()
        settings = {
            name: options.pop(name)
            for name in list(options)
            if name in FilterConfig.__dataclass_fields__
        }
        self.reader = Reader(
            BlockPool(),
            self.subjects,
            self.images,
            wants=TableFilter(r".*\..*", black).accepts,
            columns=ColumnFilter(field, ""),
            filters=FilterConfig(**settings),  # type: ignore[arg-type]
            **options,  # type: ignore[arg-type]
        )
        self.reader.start("bin.000001", 4)

    def run(self, *chunks: bytes | None) -> bool:
        """Read chunks to their end."""
        return self.reader.run(Bytes(chunks), self.deliver, self.note_idle, self.stop)

    def deliver(self, spans: list[Span]) -> bool:
        """Keep what is delivered."""
        for block, first, stop in spans:
            self.fields += block.slice(first, stop)
        return True

    def note_idle(self) -> None:
        """Count."""
        self.idle += 1

    @property
    def entries(self) -> list[Entry]:
        """Return what was delivered."""
        return list(entries_of(bytes(self.fields)))

    @property
    def values(self) -> list[str]:
        """Return the first column of every row that was delivered."""
        return [
            (row.after_columns or row.before_columns)[0].value
            for entry in self.entries
            if entry.entry_type == EntryType.ROWDATA
            for row in entry.row_change().row_datas
        ]


def log_with(*statements: str | bytes, schema: str = "db", **options: Any) -> Binlog:
    """Return a binlog of statements."""
    log = Binlog()
    log.start()
    for sql in statements:
        text = sql if isinstance(sql, bytes) else sql.encode()
        log.add(b.QUERY, b.query_body(text, schema.encode(), **options))
    return log


def insert(log: Binlog, value: int, *, table: str = "t", table_id: int = 5) -> None:
    """Append a transaction with one row."""
    log.begin()
    log.add(b.TABLE_MAP, b.table_map_body([INT], table=table, table_id=table_id))
    log.add(b.WRITE_ROWS, b.rows_body(1, b.int_row(value), table_id=table_id))
    log.xid()


# --- the loop -----------------------------------------------------------------------


def test_to_the_end_of_the_source() -> None:
    """All chunks are decoded, and the source's end is told."""
    log = log_with()
    insert(log, 1)
    insert(log, 2)
    stream = log.as_stream()
    reading = Reading()
    assert reading.run(stream[:50], stream[50:51], None, stream[51:])
    assert reading.values == ["1", "2"]
    assert reading.idle == 1


def test_stops_when_asked() -> None:
    """A stop ends the reading before the next chunk."""
    log = log_with()
    insert(log, 1)
    reading = Reading()
    reading.stop.request()
    assert not reading.run(log.as_stream())
    assert reading.values == []


def test_stops_when_delivery_is_refused() -> None:
    """Where delivery is refused nothing more is read."""
    log = log_with()
    insert(log, 1)
    reading = Reading()
    source = Bytes([log.as_stream(), log.as_stream()])
    assert not reading.reader.run(source, lambda _: False, reading.note_idle, Stop())
    assert source.try_receive_into(memoryview(bytearray(10))) == 10


def test_nothing_at_hand_and_stopped() -> None:
    """A source that has nothing and was stopped ends the reading."""

    class Silent(Bytes):
        """Has nothing."""

        def try_receive_into(self, buffer: memoryview) -> int | None:
            return None

        receive_into = lambda self, buffer, timeout_s: None  # noqa: E731

    reading = Reading()
    assert not reading.reader.run(
        Silent([]), reading.deliver, reading.note_idle, reading.stop
    )
    assert reading.idle == 1


def test_limit() -> None:
    """With `until` it ends in front of the first event at that offset."""
    log = log_with()
    insert(log, 1)
    limit = log.position
    insert(log, 2)
    reading = Reading(until=limit)
    assert not reading.run(log.as_stream())
    assert reading.values == ["1"]


@pytest.mark.parametrize(
    ("packet", "error", "message"),
    [
        (b"\xfe\0\0\2\0", StreamEnd, r"behind bin\.000001:"),
        (b"\xff\xd4\x04#HY000purged", DecodeError, "an error packet"),
    ],
)
def test_ends_of_a_stream(packet: bytes, error: type[Exception], message: str) -> None:
    """The server's own end and its errors are told apart."""
    log = log_with()
    insert(log, 1)
    reading = Reading()
    head = len(packet).to_bytes(3, "little") + b"\x20"
    with pytest.raises(error, match=message):
        reading.run(log.as_stream() + head + packet)
    assert reading.values == ["1"]


def test_errors_of_a_server() -> None:
    """What an error packet means is told by who knows the server."""
    reading = Reading(error_of_packet=lambda body: SourceError(f"said {body!r}"))
    with pytest.raises(SourceError, match=r"said b'.*abc'"):
        reading.run(b"\4\0\0\1\xffabc")


def test_rows_inside_of_a_statement() -> None:
    """A start between a table map and its rows says what to do."""
    log = log_with()
    log.add(b.WRITE_ROWS, b.rows_body(1, b.int_row(1)))
    with pytest.raises(DecodeError, match="inside of a statement"):
        Reading().run(log.as_stream())


def test_rotate_without_a_name() -> None:
    """A rotate that names no file is refused with its place."""
    log = log_with()
    log.add(b.ROTATE, bytes(8))
    with pytest.raises(DecodeError, match="without a file name") as caught:
        Reading().run(log.as_stream())
    assert (caught.value.file, caught.value.position) == (
        "bin.000001",
        4 + len(log.events[0]),
    )


# --- tables -------------------------------------------------------------------------


def test_subjects() -> None:
    """Rows carry the number of their table's name."""
    log = log_with()
    insert(log, 1)
    reading = Reading()
    numbers: list[int] = []

    def deliver(spans: list[Span]) -> bool:
        for block, first, stop in spans:
            numbers.extend(block.record(i)["subject"] for i in range(first, stop))
        return True

    reading.reader.run(Bytes([log.as_stream()]), deliver, reading.note_idle, Stop())
    number = reading.subjects.ordinal_of((("db", "t"),))
    assert numbers == [0, number, 0]


def test_tables_that_are_not_wanted() -> None:
    """What nobody wants is not looked up, nor read."""
    log = log_with()
    insert(log, 1, table="other", table_id=6)
    insert(log, 2)
    reading = Reading(black=r"db\.other")
    reading.run(log.as_stream())
    assert reading.values == ["2"]
    assert reading.images.refreshed == []


def test_wishes_change_between_a_table_map_and_its_rows() -> None:
    """A new wish counts from the next table map on; the rows before it are whole."""
    log = log_with()
    insert(log, 1)
    insert(log, 2)
    insert(log, 3, table="other", table_id=6)
    cut = sum(len(b.in_packets(event)) for event in log.events[:3])
    stream = log.as_stream()
    reading = Reading(Images(t=("int",), other=("int",)), black=r"db\.other")

    def change() -> None:
        reading.reader.change_wants(TableFilter(r"db\.other", "").accepts)

    source = Bytes([stream[:cut], None, stream[cut:]])
    reading.reader.run(source, reading.deliver, change, Stop())
    assert reading.values == ["1", "3"]


def test_columns_that_are_wanted() -> None:
    """A filter of columns is asked for each table."""
    log = log_with()
    log.begin()
    log.add(b.TABLE_MAP, b.table_map_body([INT, INT]))
    log.add(b.WRITE_ROWS, b.rows_body(2, b.int_row(1, 2)))
    reading = Reading(Images(t=("int", "int")), field="db.t:c1")
    reading.run(log.as_stream())
    (row,) = reading.entries[-1].row_change().row_datas
    assert [(c.name, c.value) for c in row.after_columns] == [("c1", "2")]


def test_columns_that_changed_places() -> None:
    """Where the binlog names columns, their filter goes by those names."""
    log = log_with()
    log.begin()
    names = b"\4\6\2c1\2c0"  # a field of that type and length: two names
    log.add(b.TABLE_MAP, b.table_map_body([INT, INT], optional=names))
    log.add(b.WRITE_ROWS, b.rows_body(2, b.int_row(1, 2)))
    reading = Reading(Images(t=("int", "int")), field="db.t:c1")
    reading.run(log.as_stream())
    (row,) = reading.entries[-1].row_change().row_datas
    assert [(c.name, c.value) for c in row.after_columns] == [("c1", "1")]


def test_columns_are_looked_up_again() -> None:
    """Where what is known does not fit, the server is asked, and then it may."""
    log = log_with()
    insert(log, 1)
    images = Images(t=("int", "int"))
    images.fresh = Images(t=("int",)).tables
    reading = Reading(images)
    reading.run(log.as_stream())
    assert reading.values == ["1"]
    assert images.refreshed == ["t"]


@pytest.mark.parametrize(
    ("types", "message"),
    [
        (("int", "int"), "column size is not match for table: db.t: 1 .* vs 2 known"),
        (("date",), r"column 1 \(c0\) of table db.t: binlog type 3 vs known type date"),
        (None, r"not found \[db.t\]"),
    ],
)
def test_columns_that_do_not_fit(types: tuple[str, ...] | None, message: str) -> None:
    """Where they do not fit at all it stops, says how, where, and what to do."""
    log = log_with()
    insert(log, 1)
    images = Images() if types is None else Images(t=types)
    with pytest.raises(TableMetaError, match=message) as caught:
        Reading(images).run(log.as_stream())
    place = 4 + len(log.events[0]) + len(log.events[1])
    assert f"at bin.000001:{place}." in str(caught.value)
    assert "filter.table.error" in str(caught.value)


def test_tables_that_may_be_left_out(caplog: pytest.LogCaptureFixture) -> None:
    """With filter.table.error the rows are left out with a warning."""
    log = log_with()
    insert(log, 1, table="gone", table_id=6)
    insert(log, 2)
    reading = Reading(table_error=True)
    with caplog.at_level(logging.WARNING):
        reading.run(log.as_stream())
    assert reading.values == ["2"]
    assert "rows of db.gone left out at bin.000001:" in caplog.text


# --- statements ---------------------------------------------------------------------


def test_ddl() -> None:
    """A DDL is delivered with its names, and the images learn of it before rows."""
    log = log_with("ALTER TABLE t ADD COLUMN b INT", thread=3)
    reading = Reading()
    reading.run(log.as_stream())
    (entry,) = reading.entries
    change = entry.row_change()
    assert (change.is_ddl, change.event_type) == (True, EventType.ALTER)
    assert (change.sql, change.ddl_schema_name) == (
        "ALTER TABLE t ADD COLUMN b INT",
        "db",
    )
    header = entry.header
    assert (header.schema_name, header.table_name) == ("db", "t")
    place = f"bin.000001:{4 + len(log.events[0])}"
    assert reading.images.applied == [("db", "ALTER TABLE t ADD COLUMN b INT", place)]
    assert reading.reader.ddl_count == 1


def test_ddl_between_rows_of_a_table() -> None:
    """Behind a DDL a table map of the same bytes is looked up anew."""
    log = log_with()
    insert(log, 1)
    log.add(b.QUERY, b.query_body(b"ALTER TABLE t COMMENT 'x'"))
    insert(log, 2)
    reading = Reading()
    found: list[tuple[str, str]] = []
    find = reading.images.find

    def noted(schema: str, table: str) -> TableMeta | None:
        found.append((schema, table))
        return find(schema, table)

    reading.images.find = noted  # type: ignore[method-assign]
    reading.run(log.as_stream())
    assert reading.values == ["1", "2"]
    assert found == [("db", "t")] * 2


def test_ddl_that_is_not_wanted() -> None:
    """DDL of other tables is not delivered, but applied all the same."""
    log = log_with("CREATE TABLE other (a INT)")
    reading = Reading(black=r"db\.other")
    reading.run(log.as_stream())
    assert reading.entries == []
    assert len(reading.images.applied) == 1


@pytest.mark.parametrize(
    ("option", "sql", "is_left"),
    [
        ("query_ddl", "CREATE TABLE x (a INT)", False),
        ("query_dml", "CREATE TABLE x (a INT)", True),
        ("query_dcl", "CREATE TABLE x (a INT)", True),
        ("query_dml", "INSERT INTO t VALUES (1)", False),
        ("query_dcl", "INSERT INTO t VALUES (1)", True),
        ("query_dcl", "CREATE DATABASE x", False),
        ("query_dml", "CREATE DATABASE x", True),
    ],
)
def test_kinds_of_statements_left_out(option: str, sql: str, *, is_left: bool) -> None:
    """Each switch leaves out its kind of statement."""
    options: dict[str, Any] = {option: True}
    reading = Reading(**options)
    reading.run(log_with(sql).as_stream())
    assert bool(reading.entries) == is_left


def test_dml_statements() -> None:
    """A statement that changes rows is delivered as such, no DDL."""
    reading = Reading()
    reading.run(log_with("UPDATE t SET a = 1").as_stream())
    change = reading.entries[0].row_change()
    assert (change.is_ddl, change.event_type) == (False, EventType.UPDATE)
    assert reading.images.applied == []


def test_statements_in_the_words_of_their_session() -> None:
    """sql_mode and character set of the session say how a text is read."""
    status = b"\1" + (4).to_bytes(8, "little") + b"\4" + struct.pack("<HHH", 28, 28, 28)
    log = log_with(
        'CREATE TABLE "中" (a INT)'.encode("gbk"),
        status=status,
    )
    reading = Reading()
    reading.run(log.as_stream())
    (entry,) = reading.entries
    assert entry.header.table_name == "中"
    assert entry.row_change().sql == 'CREATE TABLE "中" (a INT)'


def test_what_is_logged_beside_rows() -> None:
    """Texts of statements come as entries of their own, in their order."""
    log = log_with()
    log.add(b.ROWS_QUERY, b"\x20INSERT INTO t VALUES (1)")
    log.add(b.ANNOTATE_ROWS, b"DELETE FROM t")
    log.add(b.INTVAR, b"\2" + (7).to_bytes(8, "little"))
    log.add(b.RAND, struct.pack("<QQ", 1, 2))
    log.add(b.USER_VAR, struct.pack("<I", 1) + b"v\1")
    reading = Reading()
    reading.run(log.as_stream())
    changes = [entry.row_change() for entry in reading.entries]
    assert [change.sql for change in changes] == [
        "INSERT INTO t VALUES (1)",
        "DELETE FROM t",
        "SET INSERT_ID = 7",
        "SET SESSION rand_seed1 = 1 , rand_seed2 = 2",
        "SET @v := NULL",
    ]
    assert {change.event_type for change in changes} == {EventType.QUERY}
    assert {change.is_ddl for change in changes} == {None}
    assert [entry.header.table_name for entry in reading.entries][:2] == ["t", ""]
    left_out = Reading(query_dml=True)
    left_out.run(log.as_stream())
    assert left_out.entries == []


def test_incidents(caplog: pytest.LogCaptureFixture) -> None:
    """When the source says that its binlog may lack something, that is an error."""
    log = log_with()
    log.add(b.INCIDENT, b"\1\0\3abc")
    insert(log, 1)
    reading = Reading()
    with caplog.at_level(logging.ERROR):
        reading.run(log.as_stream())
    assert "incident 0100" in caplog.text
    assert reading.values == ["1"]


# --- GTIDs --------------------------------------------------------------------------


def test_sets_that_a_file_begins_with() -> None:
    """In GTID mode the set in front of a file is part of the executed set."""
    log = log_with()
    known = GtidSet.parse(f"{SID_TEXT}:1-5")
    log.add(b.PREVIOUS_GTIDS, known.encode())
    log.add(b.GTID, b.gtid_body(SID, 6))
    insert(log, 1)
    reading = Reading(gtids=GtidSet())
    reading.run(log.as_stream())
    assert str(reading.reader.gtids) == f"{SID_TEXT}:1-6"
    assert reading.entries[0].header.gtid == f"{SID_TEXT}:1-6"
    outside = Reading()
    outside.run(log.as_stream())
    assert outside.reader.gtids is None


def test_lists_that_a_file_begins_with() -> None:
    """The same for MariaDB's list."""
    log = log_with()
    log.add(b.GTID_LIST, struct.pack("<IIIQ", 1, 0, 11, 5))
    log.server_id = 11
    log.add(b.MARIA_GTID, struct.pack("<QIB", 6, 0, 0) + bytes(6))
    insert(log, 1)
    reading = Reading(gtids=MariaGtidSet())
    reading.run(log.as_stream())
    assert str(reading.reader.gtids) == "0-11-6"
    assert reading.entries[-1].header.gtid == "0-11-6"


@pytest.mark.parametrize(
    ("kind", "gtids"),
    [(b.PREVIOUS_GTIDS, GtidSet()), (b.GTID_LIST, MariaGtidSet())],
)
def test_broken_sets(kind: int, gtids: GtidSet | MariaGtidSet) -> None:
    """A set that ends early is refused with its place."""
    log = log_with()
    log.add(kind, b"\3\0\0\0")
    with pytest.raises(DecodeError) as caught:
        Reading(gtids=gtids).run(log.as_stream())
    assert caught.value.file == "bin.000001"


# --- compressed ---------------------------------------------------------------------


def inner_transaction(*values: int) -> bytes:
    """Return the events of a transaction as they lie in a payload."""
    rows = b"".join(map(b.int_row, values))
    return (
        b.inner(b.QUERY, b.query_body(b"BEGIN"))
        + b.inner(b.TABLE_MAP, b.table_map_body([INT]))
        + b.inner(b.WRITE_ROWS, b.rows_body(1, rows))
        + b.inner(b.XID, (9).to_bytes(8, "little"))
    )


@pytest.mark.parametrize("algorithm", [0, 255])
def test_compressed_transactions(algorithm: int) -> None:
    """A payload's events are delivered, compressed or not, and what follows it."""
    events = inner_transaction(*range(100_000))
    data = zstandard.compress(events) if algorithm == 0 else events
    log = log_with()
    body = b.payload_body(data, algorithm=algorithm, size=len(events))
    log.add(b.PAYLOAD, body)
    insert(log, -1)
    reading = Reading()
    reading.run(log.as_stream())
    assert reading.values == [*map(str, range(100_000)), "-1"]
    offsets = {entry.header.logfile_offset for entry in reading.entries[:3]}
    assert offsets == {4 + len(log.events[0])}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b.payload_body(b"nonsense", algorithm=0, size=9), "cannot be inflated"),
        (b.payload_body(b"x", algorithm=7, size=9), "with algorithm 7"),
        (b.payload_body(b"x" * 9, algorithm=255, size=9), "9 bytes left"),
        (b"\1", "ends early"),
    ],
)
def test_broken_payloads(body: bytes, message: str) -> None:
    """A payload that cannot be read is refused with the place of its event."""
    log = log_with()
    log.add(b.PAYLOAD, body)
    with pytest.raises(DecodeError, match=message) as caught:
        Reading().run(log.as_stream())
    assert caught.value.position == 4 + len(log.events[0])


def test_stopped_inside_of_a_payload() -> None:
    """Delivery refused in the middle of a compressed transaction ends the session."""
    log = log_with()
    events = inner_transaction(1)
    log.add(b.PAYLOAD, b.payload_body(events, algorithm=255, size=len(events)))
    reading = Reading()
    source = Bytes([log.as_stream()])
    with pytest.raises(ConnectionLost, match="inside of a compressed"):
        reading.reader.run(source, lambda _: False, reading.note_idle, Stop())


def deflated(data: bytes) -> bytes:
    """Return data as MariaDB compresses the tail of an event."""
    return b"\x82" + len(data).to_bytes(2, "big") + zlib.compress(data)


def test_compressed_events_of_mariadb() -> None:
    """Compressed statements and rows are delivered as the plain ones they stand for."""
    log = log_with()
    sql = b"CREATE TABLE x (a INT)"
    head = b.query_body(sql)[: -len(sql)]
    log.add(b.QUERY_COMPRESSED, head + deflated(sql))
    log.add(b.TABLE_MAP, b.table_map_body([INT]))
    for version, kind in ((1, b.WRITE_ROWS_COMPRESSED), (2, 169)):
        head = b.rows_body(1, b"", version=version)
        rows = b.int_row(version) + b.int_row(version + 10)
        log.add(kind, head + deflated(rows))
    head = b.rows_body(1, b"", version=1, images=2)
    log.add(167, head + deflated(b.int_row(5) + b.int_row(6)))
    log.add(168, b.rows_body(1, b"", version=1) + deflated(b.int_row(7)))
    reading = Reading()
    reading.run(log.as_stream())
    assert reading.entries[0].row_change().sql == sql.decode()
    assert reading.values == ["1", "11", "2", "12", "6", "7"]
    kinds = [entry.header.event_type for entry in reading.entries]
    assert kinds == [
        EventType.CREATE,
        EventType.INSERT,
        EventType.INSERT,
        EventType.UPDATE,
        EventType.DELETE,
    ]
    lengths = [entry.header.event_length for entry in reading.entries]
    assert lengths == [len(log.events[n]) for n in (1, 3, 4, 5, 6)]

"""Random entries, with the names, texts and images that a table may have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from canal_server.protocol.entry_messages import (
    Column,
    Entry,
    EntryType,
    EventType,
    Header,
    RowChange,
    RowData,
    TransactionBegin,
    TransactionEnd,
)
from canal_server.protocol.protobuf import encode, varint

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

SCHEMAS = ("shop", "Shop", "a.b", "x_1", "x_2", "")
TABLES = ("orders", "Orders", "t1", "t2", "order.items", "")
_NAMES = ("id", "v", "name")
_LETTERS = (
    "".join(map(chr, range(0x80)))
    + "äé€漢字\U0001f600\u2028\u2029\ufffd\x80\x9f\ud7ff\ue000"
)
_ROWS = (EventType.INSERT, EventType.UPDATE, EventType.DELETE)
_STATEMENTS = (EventType.ALTER, EventType.CREATE, EventType.QUERY, EventType.TRUNCATE)


def random_text(rng: random.Random) -> str:
    """Return a text of any letters."""
    return "".join(rng.choices(_LETTERS, k=rng.randrange(12)))


def random_body(rng: random.Random, count: int, *, has_markers: bool = False) -> bytes:
    """Return a body of Messages of some entries; markers begin and end transactions."""
    entries = [
        encode(
            _marker(rng) if has_markers and rng.random() < 0.3 else random_entry(rng)
        )
        for _ in range(count)
    ]
    return b"".join(b"\x12" + varint(len(each)) + each for each in entries)


def random_entry(rng: random.Random) -> Entry:
    """Return an entry of rows, or of a statement."""
    if rng.random() < 0.15:
        kind = rng.choice(_STATEMENTS)
        change = RowChange(
            event_type=kind, is_ddl=rng.random() < 0.8, sql=random_text(rng)
        )
    else:
        kind = rng.choice(_ROWS)
        change = _rows(rng, kind)
    header = Header(
        version=1,
        logfile_name="binlog.000001",
        logfile_offset=4,
        schema_name=rng.choice(SCHEMAS),
        table_name=rng.choice(TABLES),
        event_type=kind,
        execute_time=rng.randrange(1 << 41),
        gtid=rng.choice(("", "u:1-5")),
    )
    return Entry(
        header=header, entry_type=EntryType.ROWDATA, store_value=encode(change)
    )


def _marker(rng: random.Random) -> Entry:
    kind = rng.choice((EntryType.TRANSACTIONBEGIN, EntryType.TRANSACTIONEND))
    content: TransactionBegin | TransactionEnd = TransactionBegin(thread_id=12)
    if kind is EntryType.TRANSACTIONEND:
        content = TransactionEnd(transaction_id=str(rng.randrange(1000)))
    header = Header(version=1, logfile_name="binlog.000001", logfile_offset=4)
    return Entry(header=header, entry_type=kind, store_value=encode(content))


def _rows(rng: random.Random, kind: EventType) -> RowChange:
    names = [
        f"{random_text(rng) if rng.random() < 0.3 else rng.choice(_NAMES)}{number}"
        for number in range(rng.randrange(1, 6))
    ]
    keys = [rng.random() < 0.4 for _ in names]
    # Of an UPDATE with a minimal image, what is not in it differs from row to row.
    whole = rng.random() < 0.6

    def image(*, changed: bool) -> tuple[Column, ...]:
        chosen = [
            at for at in range(len(names)) if at == 0 or whole or rng.random() < 0.8
        ]
        return tuple(_column(rng, names, keys, at, changed=changed) for at in chosen)

    rows = tuple(
        RowData(
            before_columns=() if kind is EventType.INSERT else image(changed=False),
            after_columns=() if kind is EventType.DELETE else image(changed=True),
        )
        for _ in range(rng.randrange(1, 5))
    )
    return RowChange(event_type=kind, is_ddl=rng.choice((None, False)), row_datas=rows)


def _column(
    rng: random.Random,
    names: Sequence[str],
    keys: Sequence[bool],
    at: int,
    *,
    changed: bool,
) -> Column:
    is_null = rng.random() < 0.2
    return Column(
        name=names[at],
        index=at,
        sql_type=rng.choice((-5, 12, 4, 2004)),
        mysql_type=rng.choice(("int", "varchar(2)")),
        is_key=keys[at],
        updated=changed and rng.random() < 0.5,
        is_null=is_null,
        value="" if is_null else random_text(rng),
    )

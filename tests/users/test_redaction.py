"""What a user sees of entries, against the same rules in plain Python."""

from __future__ import annotations

from dataclasses import replace

import pytest
from client_entries import row, statement, transaction
from damaged_entries import damaged_body
from fix_random import longer
from golden_form import DATA, decode_fields, load_workload

from canal_server.client.frame_reader import entries_of
from canal_server.errors import ProtocolError
from canal_server.protocol.entry_messages import (
    Column,
    Entry,
    EntryType,
    EventType,
    Header,
    RowChange,
    RowData,
    decode_entry,
    encode,
)
from canal_server.protocol.protobuf import decode, varint
from canal_server.users.redaction import MASK, Redaction
from canal_server.users.rights import ColumnRule, ReadRule, ShownColumns

WORKLOADS = sorted(path.name.removesuffix(".tar.xz") for path in DATA.glob("*.tar.xz"))
TEXTS = ("char", "varchar", "text", "tinytext", "mediumtext", "longtext")


def fields(*entries: bytes) -> bytes:
    """Return a body of Messages of entries."""
    return b"".join(b"\x12" + varint(len(each)) + each for each in entries)


def seen(redaction: Redaction, *entries: bytes) -> list[Entry]:
    """Return what is left of entries, decoded."""
    return [
        decode_entry(each) for each in entries_of(redaction.apply(fields(*entries)))
    ]


def change_of(entry: Entry) -> RowChange:
    """Return the content of an entry."""
    return decode(RowChange, entry.store_value)


class PlainRedaction:
    """The rules, an object a column."""

    def __init__(self, shown: ShownColumns, *, columns: bool) -> None:
        self.shown, self.columns = shown, columns

    def apply(self, entries: list[bytes]) -> list[Entry]:
        """Return what is left."""
        found = (self._entry(decode_entry(each)) for each in entries)
        return [each for each in found if each is not None]

    def _entry(self, entry: Entry) -> Entry | None:
        if entry.entry_type is not EntryType.ROWDATA:
            return entry
        change, header = change_of(entry), entry.header
        kind = change.event_type
        if not header.table_name:
            xa = (EventType.XACOMMIT, EventType.XAROLLBACK)
            return entry if kind in xa else None
        if kind is EventType.QUERY and not change.is_ddl:
            return None
        names = header.schema_name, header.table_name
        if not self.shown.shows(*names):
            return None
        if not change.is_ddl:
            change = replace(change, sql="")
        if self.columns:
            rows = tuple(self._row(names, each) for each in change.row_datas)
            change = replace(change, row_datas=rows)
        return replace(entry, store_value=encode(change))

    def _row(self, names: tuple[str, str], row_data: RowData) -> RowData:
        before = self._kept(names, row_data.before_columns)
        after = self._kept(names, row_data.after_columns)
        return replace(row_data, before_columns=before, after_columns=after)

    def _kept(
        self, names: tuple[str, str], columns: tuple[Column, ...]
    ) -> tuple[Column, ...]:
        kept = []
        for each in columns:
            rule = self.shown.column_rule(*names, each.name)
            if rule is ColumnRule.MASKED:
                is_text = each.mysql_type.lower().startswith(TEXTS)
                value = MASK.decode() if is_text else ""
                kept.append(
                    replace(each, value=value, is_null=not is_text, length=0, props=())
                )
            elif rule is ColumnRule.SHOWN:
                kept.append(each)
        return tuple(kept)


def compared(entry: Entry) -> object:
    """Return an entry without regard to the bytes of its content."""
    if entry.entry_type is EntryType.ROWDATA:
        return replace(entry, store_value=b""), change_of(entry)
    return entry


@pytest.mark.parametrize("name", WORKLOADS)
def test_recorded(name: str, tmp_path, rng) -> None:
    """Of all recorded entries, any rules leave exactly what they say."""
    entries = entries_of(decode_fields(load_workload(name), tmp_path))
    tables: dict[str, set[str]] = {}
    for entry in map(decode_entry, entries):
        if entry.entry_type is EntryType.ROWDATA and entry.header.table_name:
            key = f"{entry.header.schema_name}.{entry.header.table_name}"
            known = tables.setdefault(key, set())
            for each in change_of(entry).row_datas:
                columns = (*each.before_columns, *each.after_columns)
                known.update(column.name for column in columns)
    for _ in range(longer(6)):
        allowed = [each for each in sorted(tables) if rng.random() < 0.7]

        def some_columns(share: float, allowed: list[str] = allowed) -> str:
            lists = []
            for table in allowed:
                names = [n for n in sorted(tables[table]) if rng.random() < share]
                plain = [n for n in names if not set(n) & set(":,/")]
                if plain and not set(table) & set(":,"):
                    lists.append(f"{table}:{'/'.join(plain)}")
            return ",".join(lists)

        rule = ReadRule(
            "*",
            tables=",".join(each.replace(".", "\\.") for each in allowed) or "none",
            removed=some_columns(0.2),
            masked=some_columns(0.3),
        )
        shown = ShownColumns(rule)
        has_columns = rng.random() < 0.8
        redaction = Redaction(shown.shows, shown.column_rule if has_columns else None)
        expected = PlainRedaction(shown, columns=has_columns).apply(entries)
        assert list(map(compared, seen(redaction, *entries))) == list(
            map(compared, expected)
        )
        # In pieces, as batches come.
        cut = rng.randint(0, len(entries))
        pieces = [*seen(redaction, *entries[:cut]), *seen(redaction, *entries[cut:])]
        assert list(map(compared, pieces)) == list(map(compared, expected))


def test_statement_texts() -> None:
    """Texts of statements, which may hold values of any table, are left out."""
    redaction = Redaction(lambda schema, table: table == "orders")
    header = Header(schema_name="shop", table_name="orders", event_type=EventType.QUERY)
    texts = [
        Entry(replace(header, table_name=table), EntryType.ROWDATA, encode(change))
        for table in ("", "orders")
        for change in (
            RowChange(event_type=EventType.QUERY, sql="INSERT INTO orders VALUES (7)"),
        )
    ]
    assert seen(redaction, *map(encode, texts)) == []

    # MariaDB's rows may carry theirs; DDL keeps its own.
    one = decode_entry(row(1))
    change = replace(change_of(one), sql="INSERT INTO orders SELECT * FROM secrets")
    with_text = encode(replace(one, store_value=encode(change)))
    (found,) = seen(redaction, with_text)
    assert change_of(found) == change_of(one)
    (found,) = seen(redaction, statement(1, "ALTER TABLE orders ADD x INT"))
    assert change_of(found).sql == "ALTER TABLE orders ADD x INT"


def test_transactions_keep_their_ends() -> None:
    """A batch of tables that are not shown still begins and ends its transactions."""
    redaction = Redaction(lambda schema, table: False)
    kinds = [each.entry_type for each in seen(redaction, *transaction(1, 3))]
    assert kinds == [EntryType.TRANSACTIONBEGIN, EntryType.TRANSACTIONEND]


def test_columns_after_ddl() -> None:
    """A column is found by its name wherever it stands after an ALTER TABLE."""

    def of(*names: str) -> bytes:
        columns = tuple(
            Column(index=i, name=name, value=name, mysql_type="varchar(9)")
            for i, name in enumerate(names)
        )
        change = RowChange(
            event_type=EventType.INSERT, row_datas=(RowData(after_columns=columns),)
        )
        header = Header(schema_name="s", table_name="t")
        return encode(Entry(header, EntryType.ROWDATA, encode(change)))

    shown = ShownColumns(ReadRule("*", removed="s.t:card", masked="S.T:Name"))
    redaction = Redaction(shown.shows, shown.column_rule)
    for names in (["card", "name", "x"], ["x", "card", "name"], ["NAME", "Card"]):
        (entry,) = seen(redaction, of(*names))
        (found,) = change_of(entry).row_datas
        values = {each.name: each.value for each in found.after_columns}
        expected = {n: "****" if n.lower() == "name" else n for n in names}
        assert values == {n: v for n, v in expected.items() if n.lower() != "card"}


def test_damaged(rng) -> None:
    """Of malformed entries nothing is shown, and memory stays intact."""
    shown = ShownColumns(
        ReadRule("*", removed="shop.orders:x", masked="shop.orders:id")
    )
    redaction = Redaction(shown.shows, shown.column_rule)
    entries = [*transaction(1, 5), statement(9, "ALTER TABLE orders ADD x INT")]
    body = fields(*entries)
    assert b"****" not in redaction.apply(body)  # numbers become NULL
    refused = 0
    for _ in range(longer(3000)):
        try:
            redaction.apply(damaged_body(rng, entries))
        except ProtocolError:
            refused += 1
    assert refused
    whole = redaction.apply(body)
    assert len(entries_of(whole)) == 8


def test_many_tables() -> None:
    """What is remembered of tables is bounded, and right afterwards."""
    redaction = Redaction(lambda schema, table: table.endswith("1"))
    entries = [row(i, f"t{i}") for i in range(25_000)]
    assert len(seen(redaction, *entries)) == 2_500
    assert len(seen(redaction, *entries[:10])) == 1

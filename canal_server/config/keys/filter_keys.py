"""The keys that say what an instance captures."""

from __future__ import annotations

from canal_server.config import values
from canal_server.config.keys.setting import Key

FILTER_KEYS = (
    Key(
        "canal.instance.filter.regex",
        "filter.regex",
        values.tables,
        "The tables for clients that have no filter of their own: regular expressions"
        " for `schema.table`, with each backslash doubled in the file.",
    ),
    Key(
        "canal.instance.filter.black.regex",
        "filter.black_regex",
        values.tables,
        "The tables that no client receives.",
    ),
    Key(
        "canal.instance.filter.client.length.max",
        "filter.client_length_max",
        values.integer(1, 1_000_000, "characters"),
        "The length of the longest filter that a client may set. A longer one is"
        " refused, also [one that is stored](../explanation/costly-filters.md).",
        ours=True,
    ),
    Key(
        "canal.instance.filter.field",
        "filter.field",
        values.text,
        "The columns that are captured of single tables:"
        " `schema.table:a/b,schema.other:c`.",
    ),
    Key(
        "canal.instance.filter.black.field",
        "filter.black_field",
        values.text,
        "The columns that are left out, in the same form.",
    ),
    Key(
        "canal.instance.filter.druid.ddl",
        "filter.druid_ddl",
        values.boolean,
        "`true` recognizes DDL by parsing it. `false` asks for patterns instead, which"
        " is not supported: the key is read and checked, `false` logs a warning, and"
        " DDL is parsed anyway.",
    ),
    *(
        Key(
            f"canal.instance.filter.{name}",
            f"filter.{field}",
            values.boolean,
            f"`true` leaves out {what}.",
        )
        for name, field, what in (
            ("query.dcl", "query_dcl", "statements such as GRANT"),
            ("query.dml", "query_dml", "statements that change rows"),
            ("query.ddl", "query_ddl", "DDL statements"),
            (
                "table.error",
                "table_error",
                "rows of tables whose columns are unknown, instead of stopping",
            ),
            ("rows", "rows", "all rows"),
            (
                "transaction.entry",
                "transaction_entry",
                "begins and ends, so that clients do not see where a transaction ends",
            ),
            ("dml.insert", "dml_insert", "the rows of inserts"),
            ("dml.update", "dml_update", "the rows of updates"),
            ("dml.delete", "dml_delete", "the rows of deletes"),
        )
    ),
    Key(
        "canal.instance.filter.unknown.events",
        "filter.unknown_events",
        values.boolean,
        "`true` leaves out events of unknown kinds, which may carry rows. `false` stops"
        " the instance at such an event.",
        ours=True,
    ),
)

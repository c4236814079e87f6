"""Messages of filters: of tables, of columns, of clients."""

from __future__ import annotations

from logging import WARNING

from canal_server.messages.message import Message

CLIENT_FILTER_DOUBTFUL = Message(
    name="client-filter-doubtful",
    level=WARNING,
    text="destination %s: filter of client %s: %s",
    meaning="A part of the filter probably does not match what was intended.",
    remedy="Correct the filter in the client. What the text names has no effect.",
)

COLUMN_FILTER_IGNORED = Message(
    name="column-filter-ignored",
    level=WARNING,
    text="column filter %s is ignored; write schema.table:column/column",
    meaning="`canal.instance.filter.field` or `canal.instance.filter.black.field` has"
    " an entry that names no columns.",
    remedy="Write it as `schema.table:column/column`.",
)

FILTER_TOO_COSTLY = Message(
    name="filter-too-costly",
    level=WARNING,
    text="filter %s takes more than %d steps on %s; this table, and others on which the"
    " filter takes as long, are treated as %s",
    meaning="The regular expression tries too many ways to match the name of a table."
    " Matching ends at the limit, so that it does not delay other clients.",
    remedy="Simplify it, see [costly filters](../explanation/costly-filters.md).",
)

FILTERS_TOO_COSTLY = Message(
    name="filters-too-costly",
    level=WARNING,
    text="the filters of all clients take more than %d steps on %s; the table is read"
    " as if one of them matched it",
    meaning="Together, the filters of the clients try too many ways to match the name"
    " of a table. Each client still receives only what its own filter matches.",
    remedy="Simplify them, see [costly filters](../explanation/costly-filters.md).",
)

"""Messages of ranged reads, as Spark makes them."""

from __future__ import annotations

from logging import ERROR, WARNING

from canal_server.messages.message import Message

RANGE_READER_STALLED = Message(
    name="range-reader-stalled",
    level=WARNING,
    text="destination %s: closed the connection of a reader that received nothing of"
    " its range for %.0f s, while others wait for one of %d slots",
    meaning="A reader of ranges (a Spark task) stalled while others waited. It reads"
    " the range again automatically.",
    remedy="Find out why the task stalled: a slow sink, or a paused machine.",
)

RANGE_SCHEMAS_UNKNOWN = Message(
    name="range-schemas-unknown",
    level=WARNING,
    text="destination %s: the table schemas at %s are not known from another server"
    " either: %s",
    meaning="A range begins before the table history of the current source, and the"
    " history of the previous one does not help, for the reason in the text.",
    remedy="Nothing, unless a `TableMetaError` follows.",
)

SUBSCRIPTION_UNREADABLE = Message(
    name="subscription-unreadable",
    level=ERROR,
    text="destination %s: subscription %s cannot be read because its filter is not"
    " accepted: %s",
    meaning="The stored filter of the subscription is no longer a valid expression, or"
    " is above a limit. Other subscriptions are served.",
    remedy="Subscribe with another filter.",
)

TRANSACTIONS_DIED_WITH_SOURCE = Message(
    name="transactions-died-with-source",
    level=WARNING,
    text="%s never had these transactions, which were read from another server: %s;"
    " they were lost with that server",
    meaning="An asynchronous replica became the source without the last transactions of"
    " the previous source, which readers had already received.",
    remedy="Compare the readers' copies with the source. Semi-synchronous replication"
    " prevents it.",
)

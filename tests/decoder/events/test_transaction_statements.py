"""Transaction control, distinguished from all other statements."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from canal_server.decoder.events.transaction_statements import kind_of_statement

if TYPE_CHECKING:
    import random

OTHER, BEGIN, COMMIT, XA_START, XA_END, XA_COMMIT, XA_ROLLBACK, NOTHING = range(8)
ROLLBACK = 8


@pytest.mark.parametrize(
    ("sql", "kind"),
    [
        (b"BEGIN", BEGIN),
        (b"begin", BEGIN),
        (b" \t\nBegin ; ", BEGIN),
        (b"/* a */ BEGIN /* b */;", BEGIN),
        (b"/* unfinished", NOTHING),
        (b"COMMIT", COMMIT),
        (b"commit;", COMMIT),
        (b"COMMIT /* done */", COMMIT),
        (b"XA START X'61',X'',1", XA_START),
        (b"xa  begin 'a'", XA_START),
        (b"XA END X'61',X'',1", XA_END),
        (b"XA COMMIT X'61',X'',1", XA_COMMIT),
        (b"XA ROLLBACK X'61',X'',1", XA_ROLLBACK),
        (b"XA PREPARE 'a'", OTHER),
        (b"XA", OTHER),
        (b"SAVEPOINT `a`", NOTHING),
        (b"ROLLBACK", ROLLBACK),
        (b"rollback ; /* all */", ROLLBACK),
        (b"ROLLBACK TO `a`", NOTHING),
        (b"RELEASE SAVEPOINT a", NOTHING),
        (b";", NOTHING),
        (b" /* nothing */ ", NOTHING),
        (b"", OTHER),
    ],
)
def test_kinds(sql: bytes, kind: int) -> None:
    """Each statement that delimits transactions is known by itself."""
    assert kind_of_statement(sql) == kind


@pytest.mark.parametrize(
    "sql",
    [
        b"ALTER TABLE t DROP COLUMN is_begin",
        b"ALTER TABLE t DROP COLUMN `COMMIT",
        b"BEGIN NOT ATOMIC SELECT 1; END",
        b"BEGIN WORK",
        b"BEGINNING",
        b"BEGIN_",
        b"BEGIN$",
        b"BEGIN1",
        b"BEGIN\xc3\xa9",
        b"COMMIT AND CHAIN",
        b"COMMITS",
        b"SAVEPOINTS",
        b"XAB START 'a'",
        b"XA STARTING",
        b"/*!50100 BEGIN */",
        b"/*M!50100 COMMIT */",
        b"CREATE TABLE begin (a INT)",
        b"'BEGIN'",
    ],
)
def test_statements_that_only_look_like_it(sql: bytes) -> None:
    """A statement with further content is not transaction control."""
    assert kind_of_statement(sql) == OTHER


def test_any_bytes(rng: random.Random) -> None:
    """Any bytes, truncated anywhere, give one of the kinds."""
    words = [
        b"BEGIN",
        b"XA ",
        b"START",
        b"/*",
        b"*/",
        b"/*!",
        b"/*M!",
        b";",
        b" ",
        b"/",
    ]
    for _ in range(3000):
        sql = b"".join(
            rng.choice(words) if rng.random() < 0.8 else rng.randbytes(2)
            for _ in range(rng.randint(0, 5))
        )
        assert kind_of_statement(sql[: rng.randint(0, len(sql))]) in range(8)

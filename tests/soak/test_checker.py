"""The ledger and what is held against it: every injected fault is found."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from soak.checker import Follower, Row, Violation
from soak.ledger import ID, TX, Ledger, N, State, plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from soak.ledger import Item, Values

T, U = "shop.t", "shop.u"


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    """Give an empty ledger."""
    made = Ledger(tmp_path / "values")
    yield made
    made.close()


def values(number: int, tx: int, text: str | None = "a") -> Values:
    """Return a row as a transaction left it."""
    return {ID: str(number), TX: str(tx), N: "1", "text": text}


def row(table: str, before: Values, after: Values) -> Row:
    """Return a change as it comes."""
    kind = "INSERT" if not before else "UPDATE" if after else "DELETE"
    return Row(table, kind, before, after)


class Scene:
    """Transactions with one inserted row for each table that is named."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.rows: list[list[Row]] = []
        self.items: list[Item] = []

    def write(self, *tables: str, state: State = State.DONE) -> list[Row]:
        """Write a transaction; returns its rows."""
        tx = len(self.items)
        rows = [row(t, {}, values(n, tx)) for n, t in enumerate(tables)]
        changes = [
            [self.ledger.change(r.table, r.kind, r.before, r.after)] for r in rows
        ]
        item = self.ledger.note_rows(changes)
        self.ledger.settle(item, state)
        self.rows.append(rows)
        self.items.append(item)
        return rows

    def follower(
        self, accepts: Callable[[str], bool] = lambda _: True, *, again: bool = True
    ) -> Follower:
        """Return a follower of some tables."""
        return Follower(self.ledger, "x", accepts, statements=True, again=again)


@pytest.fixture
def scene(ledger: Ledger) -> Scene:
    """Give five transactions of one table and two of two."""
    made = Scene(ledger)
    for tables in ((T,), (T, T), (U,), (T, U), (T,), (U, T), (T,)):
        made.write(*tables)
    return made


def test_all_is_well(scene):
    """A stream with everything in its order leaves nothing missing."""
    follower = scene.follower()
    for rows in scene.rows:
        follower.transaction(rows)
    assert follower.missing() == []
    assert follower.order == list(range(7))


def test_one_row_dropped(scene):
    """A transaction that lacks one row is a violation."""
    follower = scene.follower()
    follower.transaction(scene.rows[0])
    with pytest.raises(Violation, match="ends after 1 rows"):
        follower.transaction(scene.rows[1][:1])


def test_a_row_too_many(scene):
    """A transaction with a row of the next one is found out."""
    with pytest.raises(Violation, match="a row too many"):
        scene.follower().transaction(scene.rows[0] + scene.rows[1][:1])


def test_one_transaction_dropped(scene):
    """What comes after a transaction that was left out shows which one it was."""
    follower = scene.follower()
    follower.transaction(scene.rows[0])
    with pytest.raises(Violation, match=r"item 4 .* arrived, and item 1 .* did not"):
        follower.transaction(scene.rows[4])


def test_the_last_transaction_dropped(scene):
    """What did not come at the end is missing, of each table that is accepted."""
    follower = scene.follower()
    for rows in scene.rows[:5]:
        follower.transaction(rows)
    assert [item.number for item in follower.missing()] == [5, 6]
    others = scene.follower(lambda table: table == U)
    for rows in scene.rows[:5]:
        others.transaction(rows)
    assert [item.number for item in others.missing()] == [5]


def test_a_value_that_differs(scene):
    """One wrong value is named with its column, and what it was."""
    wrong = row(T, {}, values(0, 0, "b"))
    with pytest.raises(Violation, match=r"after\.text is 'b', was 'a'"):
        scene.follower().transaction([wrong])


def test_null_is_no_empty_text(scene):
    """NULL instead of a text is a difference."""
    wrong = row(T, {}, values(0, 0, None))
    with pytest.raises(Violation, match=r"after\.text is None, was 'a'"):
        scene.follower().transaction([wrong])


def test_columns_of_another_time(scene):
    """Columns that the table did not have then, or in another order, are named."""
    follower = scene.follower()
    late = row(T, {}, values(0, 0) | {"new": "1"})
    with pytest.raises(Violation, match="columns after are"):
        follower.transaction([late])
    turned = row(T, {}, dict(reversed(values(0, 0).items())))
    with pytest.raises(Violation, match="columns after are"):
        follower.transaction([turned])


def test_order_of_one_table(scene):
    """Two transactions of a table that change places are found out."""
    follower = scene.follower()
    with pytest.raises(Violation, match="did not"):
        follower.transaction(scene.rows[1])


def test_order_between_tables(scene):
    """What was committed before another one began may not come after it."""
    follower = scene.follower()
    follower.transaction(scene.rows[2])
    with pytest.raises(Violation, match="after its commit"):
        follower.transaction(scene.rows[0])


def test_a_transaction_twice(scene):
    """What comes twice is wrong where nothing began again."""
    follower = scene.follower()
    follower.transaction(scene.rows[0])
    with pytest.raises(Violation, match="arrived twice"):
        follower.transaction(scene.rows[0])


def test_restarted(scene):
    """After a resume the stream repeats from anywhere before, then goes on."""
    follower = scene.follower()
    for rows in scene.rows[:5]:
        follower.transaction(rows)
    follower.resume()
    for rows in scene.rows[2:]:
        follower.transaction(rows)
    assert follower.repeated == 3
    assert follower.missing() == []


def test_a_gap_in_what_is_repeated(scene):
    """What is repeated lacks nothing either."""
    follower = scene.follower()
    for rows in scene.rows[:5]:
        follower.transaction(rows)
    follower.resume()
    follower.transaction(scene.rows[2])
    with pytest.raises(Violation, match="instead of item 3"):
        follower.transaction(scene.rows[4])


def test_a_gap_at_a_resume(scene):
    """A stream that begins again too late has lost something."""
    follower = scene.follower()
    follower.transaction(scene.rows[0])
    follower.resume()
    with pytest.raises(Violation, match="did not"):
        follower.transaction(scene.rows[3])


def test_nothing_may_come_again(scene):
    """A sink that takes each batch once has nothing twice, whatever happened."""
    follower = scene.follower(again=False)
    follower.transaction(scene.rows[0])
    follower.resume()
    with pytest.raises(Violation, match="arrived twice"):
        follower.transaction(scene.rows[0])


def test_what_nobody_wrote(scene):
    """Rows that were never written, and such as were not committed, are found out."""
    with pytest.raises(Violation, match="nobody wrote"):
        scene.follower().transaction([row(T, {}, values(9, 99))])
    uncommitted = scene.write(T, state=State.UNCOMMITTED)
    follower = scene.follower()
    for rows in scene.rows[:7]:
        follower.transaction(rows)
    with pytest.raises(Violation, match="never committed"):
        follower.transaction(uncommitted)


def test_what_was_not_committed_is_not_missing(scene):
    """Nobody waits for a transaction whose commit failed."""
    scene.write(T, state=State.UNCOMMITTED)
    after = scene.write(T)
    follower = scene.follower()
    for rows in [*scene.rows[:7], after]:
        follower.transaction(rows)
    assert follower.missing() == []


def test_a_delete_that_was_not_committed_is_done_again(scene, ledger):
    """The second delete of a row is found where the first one failed."""
    old = values(0, 6)
    for state in (State.UNCOMMITTED, State.DONE):
        item = ledger.note_rows([[ledger.change(T, "DELETE", old, {})]])
        ledger.settle(item, state)
    follower = scene.follower()
    for rows in [*scene.rows, [row(T, old, {})]]:
        follower.transaction(rows)
    assert follower.missing() == []


def test_a_statement_dropped(scene, ledger):
    """A statement on a table has to come in its order, unless nobody can know."""
    item = ledger.note_statement([T], "ALTER TABLE t")
    ledger.settle(item, State.DONE)
    after = scene.write(T)
    follower = scene.follower()
    for rows in scene.rows[:7]:
        follower.transaction(rows)
    with pytest.raises(Violation, match="ALTER TABLE"):
        follower.transaction(after)
    ledger.settle(item, State.EITHER)
    follower.transaction(after)
    assert follower.missing() == []


def test_rows_of_a_statement_in_any_order(ledger):
    """Rows of one statement may come in any order, each of them once."""
    old = [values(n, 0) for n in range(3)]
    new = [values(n, 1) for n in range(3)]
    pairs = list(zip(old, new, strict=True))
    ledger.note_rows([[ledger.change(T, "UPDATE", o, n) for o, n in pairs]])
    rows = [row(T, o, n) for o, n in pairs]
    Scene(ledger).follower().transaction(rows[::-1])
    with pytest.raises(Violation, match="expected one of"):
        Scene(ledger).follower().transaction([rows[0], rows[0], rows[1]])


def test_documents_are_compared_by_what_they_mean(ledger):
    """A column of JSON may be written in any way, other texts may not."""
    written = values(0, 0, '{"b": 1e2, "a": 1}')
    ledger.note_rows([[ledger.change(T, "INSERT", {}, written, ["text"])]])
    follower = Scene(ledger).follower()
    follower.transaction([row(T, {}, values(0, 0, '{"a":1,"b":100.0}'))])
    assert follower.missing() == []
    assert plain(values(0, 0, "[ 1]"), []) == values(0, 0, "[ 1]")


def test_a_document_of_no_bytes(ledger):
    """It is JSON's null, which is not NULL."""
    for number in range(2):
        written = values(number, number, "null")
        change = ledger.change(T, "INSERT", {}, written, ["text"])
        ledger.settle(ledger.note_rows([[change]]), State.DONE)
    follower = Scene(ledger).follower()
    follower.transaction([row(T, {}, values(0, 0, ""))])
    with pytest.raises(Violation, match=r"after\.text is None, was 'null'"):
        follower.transaction([row(T, {}, values(1, 1, None))])


def test_documents_of_a_recreated_table(ledger):
    """A column that was JSON is a text as any other in a table of the same name."""
    document, text = values(0, 0, "[1, 2]"), values(1, 1, "[1, 2]")
    for written, documents in ((document, ["text"]), (text, [])):
        change = ledger.change(T, "INSERT", {}, written, documents)
        ledger.settle(ledger.note_rows([[change]]), State.DONE)
    follower = Scene(ledger).follower()
    follower.transaction([row(T, {}, values(0, 0, "[1,2]"))])
    with pytest.raises(Violation, match=r"after\.text is '\[1,2\]', was '\[1, 2\]'"):
        follower.transaction([row(T, {}, values(1, 1, "[1,2]"))])


def test_bytes_that_are_no_characters(ledger):
    """A server shows question marks for them, a decoder the sign for such bytes."""
    ledger.note_rows([[ledger.change(T, "INSERT", {}, values(0, 0, "a?ﾎ"))]])
    follower = Scene(ledger).follower()
    follower.transaction([row(T, {}, values(0, 0, "a\ufffdｱﾎ"))])
    assert follower.missing() == []


def test_text_before_bytes_that_are_no_characters(ledger):
    """What comes before them is compared."""
    ledger.note_rows([[ledger.change(T, "INSERT", {}, values(0, 0, "a?b"))]])
    follower = Scene(ledger).follower()
    with pytest.raises(Violation, match=r"after\.text"):
        follower.transaction([row(T, {}, values(0, 0, "b?b"))])


def test_characters_that_the_servers_do_not_know(ledger):
    """Codes of cp1256 that a server shows as question marks are characters here."""
    ledger.note_rows([[ledger.change(T, "INSERT", {}, values(0, 0, "a?b?"))]])
    follower = Scene(ledger).follower()
    follower.transaction([row(T, {}, values(0, 0, "aکbے"))])
    assert follower.missing() == []


def test_a_drop_that_comes_again(scene, ledger):
    """A drop whose text the server rewrote is known again when it is repeated."""
    drop = ledger.note_statement([T], f"DROP TABLE {T}")
    ledger.settle(drop, State.DONE)
    follower = scene.follower()
    for rows in scene.rows:
        follower.transaction(rows)
    follower.statement(follower.next_drop(T))
    follower.resume()
    follower.transaction(scene.rows[-1])
    assert follower.next_drop(T) == drop.number
    follower.statement(drop.number)
    assert follower.repeated == 2

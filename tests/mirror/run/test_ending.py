"""When a mirror that runs once is done, and when it gives up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("deltalake", reason="the extra `mirror` is not installed")

from canal_server.client.range_client import RangePosition
from canal_server.errors import CanalError, LakeError
from canal_server.mirror.run.ending import (
    NAMES_MAX,
    PATIENCE_S,
    Ending,
    Seen,
    check_stopped,
)
from canal_server.mirror.settings.table_values import TableName
from canal_server.mirror.state.state import Phase, TablesNow, TableState

if TYPE_CHECKING:
    from collections.abc import Mapping

END = RangePosition(1, "b.000002", 4)
A, B = TableName("shop", "a"), TableName("shop", "b")


def tables(message: str = "", due_at_ms: int = 0, **phases: Phase) -> TablesNow:
    """Return tables of a schema in phases."""
    return in_phases(phases, message, due_at_ms)


def in_phases(
    phases: Mapping[str, Phase], message: str = "", due_at_ms: int = 0
) -> TablesNow:
    """Return tables of a schema in phases, with the same text beside each."""
    return TablesNow(
        {
            TableName("shop", name): TableState(
                TableName("shop", name),
                f"shop/{name}",
                phase,
                message=message,
                due_at_ms=due_at_ms,
            )
            for name, phase in phases.items()
        }
    )


@pytest.fixture
def clock() -> list[float]:
    """Give a clock."""
    return [1_000.0]


@pytest.fixture
def ending(clock: list[float]) -> Ending:
    """Give an ending on that clock."""
    return Ending(lambda: clock[0], lambda: clock[0])


@pytest.mark.parametrize("phase", [Phase.FOLLOWING, Phase.STOPPED, Phase.DROPPED])
def test_done(ending: Ending, phase: Phase) -> None:
    """The stream is at the end, and no table is on its way into it."""
    now = tables(a=phase)
    assert not ending.look(Seen(tables=now))
    assert not ending.look(Seen(tables=now, reached=END, is_settled=False))
    assert not ending.look(Seen(tables=now, reached=END, is_listed=False))
    assert ending.reached is None
    assert ending.look(Seen(tables=now, reached=END))
    assert ending.reached == END


@pytest.mark.parametrize("phase", [Phase.WAITING, Phase.COPYING, Phase.CATCHING_UP])
def test_a_table_on_its_way(ending: Ending, clock: list[float], phase: Phase) -> None:
    """It is waited for as long as its copy does not fail."""
    now = tables(a=phase, b=Phase.FOLLOWING)
    for _ in range(3):
        assert not ending.look(Seen(tables=now, reached=END))
        clock[0] += PATIENCE_S


def fail(ending: Ending, clock: list[float], seen: Seen) -> str:
    """Return why it gives up, which is not at once."""
    assert not ending.look(seen)
    clock[0] += PATIENCE_S - 1
    assert not ending.look(seen)
    clock[0] += 1
    with pytest.raises(CanalError) as caught:
        ending.look(seen)
    return str(caught.value)


def test_a_copy_that_fails(ending: Ending, clock: list[float]) -> None:
    """Its table is named, with the reason of the last attempt."""
    now = tables("no disk", a=Phase.COPYING, b=Phase.FOLLOWING)
    text = fail(ending, clock, Seen(tables=now, reached=END, failing=frozenset({A})))
    assert text == (
        "no progress for 300 s: tables that do not follow the stream: shop.a (no disk)"
    )


def test_a_copy_that_pauses(ending: Ending, clock: list[float]) -> None:
    """A pause that is longer than the patience is not waited for."""
    due_at_ms = round((clock[0] + 2 * PATIENCE_S) * 1000)
    now = tables("repeated", due_at_ms, a=Phase.WAITING)
    assert "shop.a (repeated)" in fail(ending, clock, Seen(tables=now, reached=END))


def test_a_stream_that_fails(ending: Ending, clock: list[float]) -> None:
    """Its reason is told, beside the tables."""
    now = tables(a=Phase.FOLLOWING)
    text = fail(ending, clock, Seen(tables=now, failure="no server"))
    assert text == "no progress for 300 s: the stream fails: no server"


def test_rows_that_wait(ending: Ending, clock: list[float]) -> None:
    """Rows of children that cannot be read again end it as well."""
    now = tables(a=Phase.FOLLOWING)
    text = fail(ending, clock, Seen(tables=now, reached=END, is_settled=False))
    assert "foreign keys" in text


def test_dropped_tables_that_are_not_listed(ending: Ending, clock: list[float]) -> None:
    """A source that does not answer ends it, as a dropped table may exist again."""
    now = tables(a=Phase.DROPPED)
    text = fail(ending, clock, Seen(tables=now, reached=END, is_listed=False))
    assert text.endswith("the source did not answer which dropped tables exist again")


def test_progress(ending: Ending, clock: list[float]) -> None:
    """What fails and goes on all the same is waited for."""
    now = tables(a=Phase.COPYING)
    for progress in range(4):
        seen = Seen(
            tables=now, reached=END, failing=frozenset({A}), progress=(progress,)
        )
        assert not ending.look(seen)
        clock[0] += PATIENCE_S - 1


def test_one_that_works(ending: Ending, clock: list[float]) -> None:
    """A table that fails does not end the copies of others."""
    now = tables(a=Phase.COPYING, b=Phase.COPYING)
    seen = Seen(tables=now, reached=END, failing=frozenset({A}))
    for _ in range(3):
        assert not ending.look(seen)
        clock[0] += PATIENCE_S


def test_a_lake_that_fails(ending: Ending, clock: list[float]) -> None:
    """What concerns all tables is retried for as long."""
    ending.failed(LakeError("it is full"))
    clock[0] += PATIENCE_S
    with pytest.raises(CanalError, match=r"^no progress for 300 s: it is full$"):
        ending.failed(LakeError("it is full"))


def test_stopped_tables() -> None:
    """They are named, as far as there are not too many."""
    check_stopped(tables(a=Phase.FOLLOWING, b=Phase.DROPPED))
    with pytest.raises(CanalError) as caught:
        check_stopped(tables("because", b=Phase.STOPPED, a=Phase.STOPPED))
    assert str(caught.value) == (
        "tables that are stopped: shop.a (because), shop.b (because)"
    )
    many = {f"t{number:03}": Phase.STOPPED for number in range(NAMES_MAX + 2)}
    with pytest.raises(CanalError, match=r"shop\.t019 \(stopped\), and 2 more$"):
        check_stopped(in_phases(many))

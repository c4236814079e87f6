"""When a running mirror compares its tables, and what it reports of that."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("deltalake", reason="the extra `mirror` is not installed")

from canal_server.mirror.lake.lake_storage import open_folder
from canal_server.mirror.settings.settings_file import read
from canal_server.mirror.settings.table_values import TableName
from canal_server.mirror.state.state import Phase, TablesNow, TableState
from canal_server.mirror.state.verify_results import VerifyResult, VerifyResults
from canal_server.mirror.verify.verify_report import (
    DIFFERENT,
    DROPPED,
    EQUAL,
    FAILED,
    TableReport,
)
from canal_server.mirror.verify.verify_schedule import RETRY_S, VerifySchedule
from canal_server.model.columns_known import ColumnMeta
from canal_server.runtime.lifecycle import Deadline

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE_S = 60.0
DAY_S = 86_400.0
TEXT = r"""name: shop
canal: {destination: example}
source: {host: db, user: canal}
lake: {path: lake}
tables:
  - {match: shop\.log, format: json}
  - {match: shop\.ice, format: iceberg}
  - {match: .*}
verify: %s
"""
A, B, ICE, LOG, SHADOW = (
    TableName("shop", name) for name in ("a", "b", "ice", "log", "_a_gho")
)


class Scene:
    """A schedule on a clock, with comparisons whose outcome is given."""

    def __init__(self, folder: Any, verify: str) -> None:
        self.settings = read(TEXT % verify, str(folder / "m.yml"), {})
        self.folder = open_folder(self.settings.lake, self.settings.folder)
        self.now_s = 1_000_000.0
        self.reports: dict[TableName, TableReport | Exception] = {}
        # Instead of these, the first time.
        self.once: dict[TableName, TableReport | Exception] = {}
        self.compared: list[TableName] = []
        self.may_end = threading.Event()
        self.may_end.set()
        self.tables = tables(A, B)
        self.schedule = self.start()

    def start(self) -> VerifySchedule:
        """Start another process on the same lake."""
        self.schedule = VerifySchedule(
            self.settings, self.folder, self._compare, lambda: self.now_s
        )
        return self.schedule

    def _compare(self, name: TableName) -> TableReport:
        self.compared.append(name)
        assert self.may_end.wait(PATIENCE_S)
        usual = self.reports.get(name, report(name, EQUAL))
        found = self.once.pop(name, usual)
        if isinstance(found, Exception):
            raise found
        return found

    def turns(self) -> list[str]:
        """Poll until nothing is due; returns the names of what was compared."""
        self.compared.clear()
        deadline = Deadline(PATIENCE_S)
        while self.schedule.poll(self.tables):
            assert not deadline.passed()
            threading.Event().wait(0.001)
        return [name.table for name in self.compared]

    def result(self, name: TableName) -> VerifyResult:
        """Return what is stored in the lake."""
        return VerifyResults(self.folder).read_all()[name]


def report(name: TableName, outcome: str, **fields: Any) -> TableReport:
    """Return a report of a table."""
    return TableReport(table=str(name), target="", outcome=outcome, **fields)


def tables(*names: TableName, phase: Phase = Phase.FOLLOWING) -> TablesNow:
    """Return tables in a phase."""
    states = [TableState(name, f"{name.schema}/{name.table}", phase) for name in names]
    return TablesNow({state.source: state for state in states})


@pytest.fixture
def scene(tmp_path) -> Iterator[Scene]:
    """Give a schedule of once a day."""
    found = Scene(tmp_path, "{every: 24h}")
    yield found
    found.may_end.set()
    found.schedule.close(lambda: None)


def test_once_a_day(scene: Scene) -> None:
    """Each table at first, then when its result is old; over restarts."""
    assert scene.turns() == ["a", "b"]
    assert scene.result(A) == VerifyResult(A, EQUAL, 1_000_000_000)
    scene.now_s += DAY_S / 2
    assert scene.turns() == []
    VerifyResults(scene.folder).write(VerifyResult(B, EQUAL, round(scene.now_s) * 1000))
    scene.schedule.close(lambda: None)
    scene.start()
    scene.now_s += DAY_S / 2
    assert scene.turns() == ["a"], "the other one was compared by a person"
    scene.now_s += DAY_S
    assert scene.turns() == ["b", "a"]


def test_which_tables(scene: Scene) -> None:
    """Logs, new tables of schema changes, and what does not follow are left out."""
    scene.tables = TablesNow(
        {
            **tables(A, phase=Phase.STOPPED).states,
            **tables(B, ICE, LOG, SHADOW).states,
        }
    )
    assert scene.turns() == ["b", "ice"]
    assert scene.turns() == []


def test_tables_of_the_settings(tmp_path) -> None:
    """Only those that the expression names; without a period none."""
    scene = Scene(tmp_path, r"{every: 1h, tables: '.*\.b'}")
    assert scene.turns() == ["b"]
    assert Scene(tmp_path, "{}").turns() == []


def test_a_mirror_that_runs_once(tmp_path) -> None:
    """It compares each table at most once, although all are due again and again."""
    scene = Scene(tmp_path, "{every: 1s}")
    while scene.schedule.poll(scene.tables, is_once=True):
        scene.now_s += 1
    assert scene.compared == [A, B]


def test_not_beside_copies(scene: Scene) -> None:
    """Copies come first; a comparison that runs is not ended by one."""
    scene.tables = TablesNow(scene.tables.states, frozenset({B}))
    assert not scene.schedule.poll(scene.tables)
    assert scene.compared == []


def test_the_stream_is_not_held_up(scene: Scene) -> None:
    """A poll does not wait for a comparison."""
    scene.may_end.clear()
    assert scene.schedule.poll(scene.tables)
    assert scene.schedule.poll(scene.tables)
    scene.may_end.set()
    assert scene.turns()[-1] == "b"


def test_a_difference(scene: Scene, caplog) -> None:
    """It is a warning that names the table, and the result is stored."""
    scene.reports[A] = report(
        A, DIFFERENT, differing=1_200, is_all=False, position="b.000001:4"
    )
    scene.reports[B] = report(B, DIFFERENT, differing=1, position="b.000001:5")
    scene.turns()
    assert caplog.messages == [
        "shop.a: its copy differs from the source: at least 1,200 rows at b.000001:4",
        "shop.b: its copy differs from the source: 1 row at b.000001:5",
    ]
    assert scene.result(A).outcome == DIFFERENT
    assert scene.result(A).differing == 1_200


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (report(A, FAILED, problem="it is locked"), "it is locked"),
        (KeyError("id"), "internal error: KeyError('id')"),
    ],
)
def test_a_failure(scene: Scene, caplog, given, problem: str) -> None:
    """It is a warning, other tables are compared, and it is tried again."""
    scene.reports[A] = given
    assert scene.turns() == ["a", "b"]
    assert caplog.messages == [
        (
            f"shop.a: cannot compare its copy with the source: {problem}; retrying in "
            "3600 s"
        )
    ]
    assert scene.result(A).problem == problem
    scene.now_s += RETRY_S
    assert scene.turns() == ["a"]


@pytest.mark.parametrize(
    "after",
    [
        TableState(A, "shop/a", Phase.FOLLOWING, columns=(ColumnMeta("id", "int"),)),
        TableState(A, "shop/a", Phase.FOLLOWING, copy_id="c2"),
        TableState(A, "shop/a", Phase.WAITING),
        None,
    ],
)
def test_a_table_that_changed_meanwhile(scene: Scene, caplog, after) -> None:
    """A statement is no fault of the copy: the table is compared again, unwarned."""
    scene.once[A] = report(A, FAILED, problem="its columns changed")
    scene.may_end.clear()
    assert scene.schedule.poll(scene.tables)
    states = {name: at for name, at in scene.tables.states.items() if name != A}
    scene.tables = TablesNow(states | ({after.source: after} if after else {}))
    scene.may_end.set()
    is_there = after is not None and after.phase is Phase.FOLLOWING
    assert ("a" in scene.turns()) is is_there
    assert caplog.messages == []
    assert (A in VerifyResults(scene.folder).read_all()) is is_there


def test_a_table_that_was_just_dropped(scene: Scene) -> None:
    """It is no difference, and its last result stays."""
    scene.reports[A] = report(A, DROPPED, problem="the source no longer has it")
    assert scene.turns() == ["a", "b"]
    assert scene.turns() == []
    assert A not in VerifyResults(scene.folder).read_all()


def test_the_end(scene: Scene) -> None:
    """What runs is ended, however often that takes."""
    scene.may_end.clear()
    asked: list[int] = []

    def cancel() -> None:
        asked.append(len(asked))
        if len(asked) == 2:
            scene.may_end.set()

    scene.schedule.poll(scene.tables)
    scene.schedule.close(cancel)
    assert len(asked) == 2

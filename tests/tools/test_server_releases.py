"""Which releases of servers there are, and what their tests did as a table."""

from __future__ import annotations

import datetime as dt
from collections import Counter

import pytest
import server_matrix
import server_releases
import servers
from server_features import SINCE, STATEMENTS, has_feature
from server_folders import Unavailable
from server_matrix import Ran, load_results, store_results
from server_releases import RELEASES, RELEASES_WANTED, find_unpacked, wanted_release
from servers import Server, flavour_and_release
from support_paths import TESTS

REPORT = """<testsuites><testsuite>
<testcase classname="tests.e2e.test_gtid" name="a"/>
<testcase classname="tests.e2e.test_gtid" name="b"><failure>no</failure></testcase>
<testcase classname="tests.e2e.test_executed_sets" name="c"><skipped/></testcase>
<testcase classname="tests.e2e.test_check" name="d"/>
<testcase classname="tests.e2e.test_check" name="e"><error>no</error></testcase>
<testcase classname="tests.e2e.test_unrelated" name="f"/>
</testsuite></testsuites>"""


def test_names():
    """A flavour stands for what the host has, a release for itself, others for none."""
    assert flavour_and_release("mariadb") == ("mariadb", "")
    assert flavour_and_release("mysql-5.6") == ("mysql", "mysql-5.6")
    with pytest.raises(Unavailable, match=r"mysql-4\.0 is no release"):
        flavour_and_release("mysql-4.0")


def test_releases_of_the_environment(monkeypatch):
    """One of each flavour may be named; nothing named is nothing wanted."""
    monkeypatch.delenv(RELEASES_WANTED, raising=False)
    assert wanted_release("mysql") is None
    monkeypatch.setenv(RELEASES_WANTED, "mariadb-11.4, mysql-5.6")
    assert wanted_release("mysql") is RELEASES["mysql-5.6"]
    assert wanted_release("mariadb") is RELEASES["mariadb-11.4"]
    monkeypatch.setenv(RELEASES_WANTED, "mysql-5.6")
    assert wanted_release("mariadb") is None
    monkeypatch.setenv(RELEASES_WANTED, "mysql-4.0")
    with pytest.raises(Unavailable):
        wanted_release("mariadb")


def test_files_of_a_server(tmp_path):
    """Server, messages and libraries are found wherever an archive has them."""
    base = tmp_path / "a/b/mariadb-1.2"
    for folder in ("bin", "lib", "share/charsets", "data/mysqld"):
        (base / folder).mkdir(parents=True)
    (base / "bin/mysqld").touch()
    found = find_unpacked(tmp_path)
    assert found.server == base / "bin/mysqld"
    assert found.share == base / "share"
    assert found.plugins == base / "lib/plugin"
    assert found.libraries == (base / "lib", base)
    (base / "bin/mysqld").unlink()
    with pytest.raises(Unavailable, match="not complete"):
        find_unpacked(tmp_path)


def test_a_client_that_is_missing(tmp_path, monkeypatch):
    """Without the registry's client, a release is unavailable, and says why."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unavailable, match="npm is not on this machine"):
        RELEASES["mysql-5.6"].unpack(tmp_path)


def test_features():
    """A feature begins with a release of each flavour, or a flavour never gets it."""
    assert not has_feature("mysql", (5, 7, 7), "columns of type JSON")
    assert has_feature("mysql", (5, 7, 8), "columns of type JSON")
    assert not has_feature("mariadb", (12, 3, 1), "columns of type JSON")
    assert has_feature("mariadb", (10, 5, 0), "binlog_row_metadata")
    assert not SINCE.keys() & STATEMENTS.keys()


@pytest.mark.parametrize(
    ("flavour", "version", "statement"),
    [
        ("mysql", (8, 1, 0), "RESET MASTER"),
        ("mysql", (8, 2, 0), "RESET BINARY LOGS AND GTIDS"),
        ("mariadb", (11, 4, 5), "RESET MASTER"),
    ],
)
def test_statements_that_were_renamed(flavour, version, statement):
    """Each server gets the words that it understands."""
    server = Server(flavour, "mysql://u:p@localhost")
    server.__dict__["version"] = version
    assert server.reset_binlogs == statement


def test_outcomes_by_topic(tmp_path):
    """Tests are counted for the topic of their file; others are not counted."""
    report = tmp_path / "report.xml"
    topics = ["GTIDs", "check", "changes"]
    assert server_matrix.counted(report, topics)["GTIDs"] == Counter()
    report.write_text(REPORT)
    assert server_matrix.counted(report, topics) == {
        "GTIDs": Counter(passed=1, failed=1, skipped=1),
        "check": Counter(passed=1, failed=1),
        "changes": Counter(),
    }


def test_the_table():
    """A failure stands out, and a release that was not run has no numbers."""
    good = Ran("mysql-5.6", "5.6.24", counts={"check": Counter(passed=7, skipped=2)})
    bad = Ran("mysql-8.0", "8.0.12", counts={"check": Counter(passed=1, failed=2)})
    missing = Ran("mysql-5.7", missing="npm is not on this machine")
    assert [each.failed for each in (good, bad, missing)] == [False, True, False]
    assert Ran("mysql-8.0", "8.0.12", counts={"check": Counter(skipped=1)}).failed
    lines = server_matrix.table([good, bad, missing], ["check"]).splitlines()
    assert lines[2:] == [
        "| mysql-5.6 | 5.6.24 | 7 (2 not) |",
        "| mysql-8.0 | 8.0.12 | **2 of 3 failed** |",
        "| mysql-5.7 | not run |  |",
    ]


def test_results_of_several_runs(tmp_path, monkeypatch):
    """The last result of each topic counts; a release without any was not run."""
    monkeypatch.setattr(server_matrix, "REPORTS", tmp_path / "matrix")
    store_results("mysql-5.6", {"check": Counter(failed=1), "GTIDs": Counter(passed=2)})
    store_results("mysql-5.6", {"check": Counter(passed=3)})
    assert load_results("mysql-5.6") == {"check": {"passed": 3}, "GTIDs": {"passed": 2}}
    missing = server_matrix.ran_on("mysql-5.7", ["check"], is_reported=True)
    assert missing.missing == "its tests were not run"


def test_the_document():
    """The table is put between the comments, and the rest of the page stays."""
    day = dt.date(2026, 1, 31)
    counts = {"check": Counter(passed=7)}
    runs = [Ran("mysql-5.6", "5.6.24", day=day, counts=counts)]
    page = f"a\n{server_matrix.BEGIN}\nold\n{server_matrix.END}\nz\n"
    found = server_matrix.written(page, runs, ["check"])
    assert found.startswith(f"a\n{server_matrix.BEGIN}\n\nRun on 2026-01-31.\n")
    assert found.endswith(f"{server_matrix.END}\nz\n")
    assert "old" not in found
    assert "| mysql-5.6 | 5.6.24 | 7 |" in found
    with pytest.raises(AssertionError, match="has no"):
        server_matrix.written("no comments", runs, ["check"])


def test_topics_name_files_that_exist():
    """A renamed file would otherwise be missing from the table without a word."""
    for files in server_matrix.TOPICS.values():
        for file in files:
            assert (TESTS.parent / file).exists(), file


def test_a_release_that_cannot_be_had(monkeypatch, tmp_path):
    """It is listed with the reason; no test is run."""

    def refuse(*_: object) -> None:
        raise Unavailable("no mirror\nmore")

    monkeypatch.setenv(servers.UNSYNCED, "1")
    monkeypatch.setattr(server_matrix, "find_programs", refuse)
    found = server_matrix.ran_on("mysql-5.6", ["check"])
    assert (found.missing, found.counts) == ("no mirror", {})
    assert server_releases.RELEASES["mysql-9.7"].suite == "sid"

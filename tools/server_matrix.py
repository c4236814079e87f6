"""Run the tests of what a source is read for on releases of several ages.

`server_matrix.py [mysql-5.6 …]` fetches each release, runs the tests of `TOPICS` with
it as the source, and prints a table; the exit status is 1 if a test fails. A release
that cannot be had here is listed with the reason. `--write FILE` puts the table into a
document, between two comments; with `--reported` it is made of the last results
of each release and topic, and no test is run.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from server_data import template_of
from server_features import SINCE, has_feature
from server_folders import Unavailable
from server_packages import find_programs, run
from server_releases import RELEASES, RELEASES_WANTED, release_of

from canal_server.mysql.flavour import parse_version

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from server_releases import Release

HOUSE: Final = Path(__file__).parent.parent
REPORTS: Final = HOUSE / "build/matrix"
TIMEOUT_S: Final = 3600.0  # of all tests of a release
BEGIN: Final = "<!-- matrix: begin -->"
END: Final = "<!-- matrix: end -->"

# By column of the table: the files with the tests.
TOPICS: Final[dict[str, tuple[str, ...]]] = {
    "values": ("tests/differential/test_rows.py", "tests/e2e/test_typed_changes.py"),
    "changes": ("tests/e2e/test_changes.py", "tests/e2e/test_large.py"),
    "compression": ("tests/e2e/test_compressed.py",),
    "starts": ("tests/e2e/test_starts.py",),
    "GTIDs": ("tests/e2e/test_gtid.py", "tests/e2e/test_executed_sets.py"),
    "statements": ("tests/tools/test_ddl_of_release.py",),
    "table history": ("tests/e2e/test_history.py",),
    "restarts": ("tests/e2e/test_containers.py", "tests/e2e/test_boundaries.py"),
    "standby": ("tests/e2e/test_source_failover.py",),
    "login": ("tests/mysql/test_authentication.py", "tests/mysql/test_login_tls.py"),
    "check": ("tests/e2e/test_check.py",),
}


@dataclass
class Ran:
    """What the tests of a release did, by topic."""

    name: str
    version: str = ""
    missing: str = ""  # why the release cannot be had
    day: dt.date | None = None  # when the tests were run
    lacks: tuple[str, ...] = ()
    counts: dict[str, Counter[str]] = field(default_factory=dict)

    @property
    def failed(self) -> bool:
        """Return whether a test failed, or none was run although it could be had."""
        counts = sum(self.counts.values(), Counter())
        return bool(counts["failed"]) or (not self.missing and not counts["passed"])


def ran_on(name: str, topics: Iterable[str], *, is_reported: bool = False) -> Ran:
    """Run the tests of topics on a release, or read what the last run reported."""
    found = Ran(name)
    if is_reported and not results_of(name).exists():
        found.missing = "its tests were not run"
        return found
    try:
        release = release_of(name)
        programs = find_programs(release.flavour, release)
        template_of(programs)
        text = run([*programs.command(), "--version"], f"asking {name}")
    except Unavailable as error:
        found.missing = str(error).splitlines()[0]
        return found
    shown = re.search(r"Ver (\S+)", text)
    found.version = shown[1] if shown else "unknown"
    version = parse_version(found.version)
    found.lacks = tuple(
        feature
        for feature in SINCE
        if not has_feature(release.flavour, version, feature)
    )
    if is_reported:
        known = load_results(name)
        found.counts = {topic: known.get(topic, Counter()) for topic in topics}
    else:
        found.counts = _run_tests(release, topics)
        store_results(name, found.counts)
    changed_s = results_of(name).stat().st_mtime
    found.day = dt.datetime.fromtimestamp(changed_s, dt.UTC).date()
    return found


def results_of(name: str) -> Path:
    """Return the file with the last results of each topic on a release."""
    return REPORTS / f"{name}.json"


def load_results(name: str) -> dict[str, Counter[str]]:
    """Return the last results by topic, those of a run that had other topics too."""
    path = results_of(name)
    found = json.loads(path.read_text()) if path.exists() else {}
    return {topic: Counter(counts) for topic, counts in found.items()}


def store_results(name: str, counts: dict[str, Counter[str]]) -> None:
    """Store the results of topics beside those of the other ones."""
    path = results_of(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(load_results(name) | counts, indent=1))


def _run_tests(release: Release, topics: Iterable[str]) -> dict[str, Counter[str]]:
    """Run the tests of topics on a release; there is a log beside their report.

    A run that does not end by itself leaves no report.
    """
    report = REPORTS / f"{release.name}.xml"
    # Not "not mysql": the tests of the login are in a folder of that name.
    names = "mariadb" if release.flavour == "mariadb" else "not mariadb"
    files = [file for topic in topics for file in TOPICS[topic]]
    report.parent.mkdir(parents=True, exist_ok=True)
    report.unlink(missing_ok=True)
    with report.with_suffix(".log").open("wb") as log:
        subprocess.run(
            [
                *(sys.executable, "-m", "pytest", *files, "-k", names),
                f"--junitxml={report}",
            ],
            cwd=HOUSE,
            env=os.environ | {RELEASES_WANTED: release.name},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            timeout=TIMEOUT_S,
            check=False,
        )
    return counted(report, topics)


def counted(report: Path, topics: Iterable[str]) -> dict[str, Counter[str]]:
    """Return how many tests of each topic passed, failed and were skipped."""
    topic_of = {
        file.removesuffix(".py").replace("/", "."): topic
        for topic in topics
        for file in TOPICS[topic]
    }
    counts: dict[str, Counter[str]] = {topic: Counter() for topic in topics}
    if not report.exists():
        return counts
    for case in ET.parse(report).iter("testcase"):
        topic = topic_of.get(case.get("classname", ""))
        if topic is None:
            continue
        kinds = {each.tag for each in case}
        bad = kinds & {"failure", "error"}
        outcome = "failed" if bad else "skipped" if "skipped" in kinds else "passed"
        counts[topic][outcome] += 1
    return counts


def cell(counts: Counter[str]) -> str:
    """Return what a table says of a topic."""
    if counts["failed"]:
        return f"**{counts['failed']} of {counts.total()} failed**"
    if counts["passed"]:
        left_out = f" ({counts['skipped']} not)" if counts["skipped"] else ""
        return f"{counts['passed']}{left_out}"
    return "none"


def table(runs: Sequence[Ran], topics: Sequence[str]) -> str:
    """Return the runs as a table in Markdown, a release a line."""
    lines = [
        f"| release | version | {' | '.join(topics)} |",
        f"|---|---|{'---|' * len(topics)}",
    ]
    for each in runs:
        if each.missing:
            cells = ["not run", *[""] * len(topics)]
        else:
            cells = [each.version, *(cell(each.counts[topic]) for topic in topics)]
        lines.append(f"| {each.name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def written(text: str, runs: Sequence[Ran], topics: Sequence[str]) -> str:
    """Return a document with the table between its two comments."""
    head, _, rest = text.partition(BEGIN)
    _, found, tail = rest.partition(END)
    assert found, f"the document has no {BEGIN} … {END}"
    days = sorted({str(each.day) for each in runs if each.day})
    date = f"Run on {' and '.join(days)}."
    return f"{head}{BEGIN}\n\n{date}\n\n{table(runs, topics)}\n\n{END}{tail}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help=f"of {', '.join(RELEASES)}")
    parser.add_argument("--topic", action="append", choices=TOPICS, help="default: all")
    parser.add_argument("--write", type=Path, metavar="FILE")
    parser.add_argument(
        "--reported", action="store_true", help="run nothing, show the last results"
    )
    options = parser.parse_args(arguments)
    topics = options.topic or list(TOPICS)
    runs = []
    for name in options.names or RELEASES:
        runs.append(ran_on(name, topics, is_reported=options.reported))
        print(table(runs[-1:], topics).splitlines()[-1], flush=True)
    print(f"\n{table(runs, topics)}\n")
    for each in runs:
        if each.missing:
            print(f"{each.name} was not run: {each.missing}")
        elif each.lacks:
            print(f"{each.name} lacks: {', '.join(each.lacks)}")
    if options.write:
        document = options.write.read_text(encoding="utf-8")
        options.write.write_text(written(document, runs, topics), encoding="utf-8")
    return 1 if any(each.failed for each in runs) else 0


if __name__ == "__main__":
    sys.exit(main())

"""Runs the suite, in the groups that are quickest together.

    python tools/run_tests.py [--only quick|slow] [-n N] [--spark-n N] [--second-try]

Without `--only` it runs all. Slow are the tests with that mark: all of Spark, and those
that take minutes on two cores.

With `--second-try`, as in CI, tests that failed run once more, one after the other. One
that passes then is named as unstable: it depends on the load of the machine, which is a
fault of the test or of the program and to be mended, but does not hide what the other
tests say. More than `UNSTABLE_MAX` failures are not tried again: they have one cause.

Exit status: 0 all passed (or were unstable), 1 some failed, else that of pytest.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

UNSTABLE_MAX: Final = 10
TESTS_FAILED: Final = 1  # pytest's exit status
CACHE: Final = Path(".pytest_cache")
ONLY: Final = ("quick", "slow")
SPARK: Final = "spark_session"  # tests that share one; each process has its own


def failed_tests(cache: Path = CACHE) -> list[str]:
    """Return the ids of the tests that failed in the last run, by pytest's cache."""
    try:
        found = json.loads((cache / "v/cache/lastfailed").read_text())
    except FileNotFoundError:
        return []
    return sorted(found)


def run(arguments: Sequence[str]) -> int:
    """Run pytest; returns its exit status.

    Its own script, as `python -m pytest` would find the checkout before the package
    that is installed.
    """
    pytest = Path(sys.executable).with_name("pytest")
    return subprocess.run([pytest, *arguments], check=False).returncode


def run_group(arguments: Sequence[str], *, second_try: bool) -> tuple[int, list[str]]:
    """Run tests; returns pytest's exit status and the tests that were unstable."""
    (CACHE / "v/cache/lastfailed").unlink(missing_ok=True)
    status = run(arguments)
    failed = failed_tests()
    if status != TESTS_FAILED or not second_try or len(failed) > UNSTABLE_MAX:
        return status, []
    print(f"\n{len(failed)} failed and run once more, one after the other", flush=True)
    status = run(failed)
    left = failed_tests()
    return status, [each for each in failed if each not in left]


def groups(only: str | None, most: str, spark: str) -> list[tuple[str, str]]:
    """Return expressions of marks, and how many processes run the tests they select.

    Those of Spark are slow ones.
    """
    if only == "quick":
        return [("not slow", most)]
    of_rest = f"slow and not {SPARK}" if only else f"not {SPARK}"
    return [(of_rest, most), (SPARK, spark)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all groups, whatever the first one finds."""
    parser = argparse.ArgumentParser(description="Run the suite.")
    parser.add_argument("--only", choices=ONLY, help="which tests (all)")
    parser.add_argument("-n", default="4", help="processes for most tests (4)")
    parser.add_argument("--spark-n", default="2", help="processes for Spark's (2)")
    parser.add_argument("--second-try", action="store_true")
    options = parser.parse_args(arguments)
    status, unstable = 0, []
    for marks, processes in groups(options.only, options.n, options.spark_n):
        group = ["-m", marks, "-n", processes, "--dist", "worksteal"]
        ended, passed = run_group(group, second_try=options.second_try)
        status = status or ended
        unstable += passed
    for each in unstable:
        print(f"UNSTABLE {each}: failed, then passed alone", flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())

"""How many transactions are between two executed GTID sets."""

from __future__ import annotations

from canal_server.core.gtid.mariadb_sets import MariaGtidSet
from canal_server.core.gtid.mysql_sets import GtidSet


def transactions_between(earlier: str, later: str) -> int | None:
    """Return how many transactions are in the later set only.

    None if a set is not known (its text is empty) or not valid, or if the sets are of
    different kinds of servers. A set of MariaDB has the last number of each domain,
    and its numbers grow by 1.
    """
    is_mysql = ":" in later
    if not (earlier and later) or (":" in earlier) != is_mysql:
        return None
    try:
        if is_mysql:
            missing = GtidSet.parse(later).subtract(GtidSet.parse(earlier))
            return sum(map(_length, _ranges(str(missing))))
        before, after = map(_last_numbers, (earlier, later))
    except ValueError:
        return None
    return sum(max(0, after[name] - before.get(name, 0)) for name in after)


def _ranges(text: str) -> list[str]:
    """Return the ranges of a set's text, `1-5` or `7`; other parts are names."""
    parts = [part for each in text.split(",") for part in each.split(":")[1:]]
    return [part for part in parts if part[:1].isdigit()]


def _length(numbers: str) -> int:
    first, _, last = numbers.partition("-")
    return int(last or first) - int(first) + 1


def _last_numbers(text: str) -> dict[str, int]:
    found = (each.split("-") for each in str(MariaGtidSet.parse(text)).split(","))
    return {domain: int(number) for domain, _, number in found}

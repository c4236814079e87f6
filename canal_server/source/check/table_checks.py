"""Checks of the tables: what the filter matches, what the account may read of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from canal_server.errors import CanalError
from canal_server.filters.table_filters import TableFilter
from canal_server.model.check_results import fail, ok, skip, warn
from canal_server.model.quoted import quoted
from canal_server.mysql.server_errors import account_text
from canal_server.source.check.visible_tables import (
    MATCHES_MAX,
    key_warning,
    table_warning,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from canal_server.config.schema import FilterConfig
    from canal_server.model.check_results import CheckResult
    from canal_server.source.check.checked_source import CheckedSource
    from canal_server.source.check.source_facts import SourceFacts, Table

NAMED_MAX: Final = 5  # tables in a message


def matching(filters: FilterConfig, tables: Sequence[Table]) -> list[Table]:
    """Return the tables that the filters let through, among the first ones."""
    accepts = TableFilter(filters.regex, filters.black_regex).accepts
    return [table for table in tables[:MATCHES_MAX] if accepts((table,))]


def check_filter(facts: SourceFacts, checked: CheckedSource) -> CheckResult:
    """Check that the filter matches a table that the account sees.

    A destination starts without one, as tables may be created later.
    """
    name, tables, filters = "filter", facts.tables, checked.config.filter
    if isinstance(tables, CanalError):
        return skip(name, "canal.instance.filter.regex", str(tables))
    text = table_warning(filters, tables, facts.capture.account, facts.address)
    found = len(matching(filters, tables))
    if text:
        return (warn if found else fail)(name, text)
    number = "1 table" if found == 1 else f"{found} tables"
    return ok(name, f"canal.instance.filter.regex matches {number}")


def check_select(facts: SourceFacts, checked: CheckedSource) -> CheckResult:
    """Check that the account may read the columns of the tables."""
    name, grants, tables = "select", facts.capture.grants, facts.tables
    if isinstance(tables, CanalError):
        return skip(name, "SELECT", str(tables))
    if grants is None:
        return skip(name, "SELECT", "the server does not show the grants")
    account = facts.capture.account
    found = matching(checked.config.filter, tables)
    if not found and not grants.has_global("SELECT"):
        return skip(name, "SELECT", "the filter matches no table that the account sees")
    lacking = [table for table in found if grants.lacks("SELECT", *table)]
    if not lacking:
        return ok(name, f"account {account[0]} has SELECT on what the filter matches")
    more = len(lacking) - NAMED_MAX
    listed = ", ".join(quoted(".".join(each)) for each in lacking[:NAMED_MAX])
    return fail(
        name,
        f"account {account[0]} lacks SELECT on {listed}"
        + (f" and {more} more" if more > 0 else ""),
        "have an administrator run: " + grant_select(lacking[0], account),
    )


def grant_select(table: Table, account: tuple[str, str]) -> str:
    """Return the statement that lets an account read the schema of a table."""
    schema = table[0].replace("`", "``").replace("_", r"\_").replace("%", r"\%")
    return f"GRANT SELECT ON `{schema}`.* TO {account_text(*account)}"


def check_foreign_keys(facts: SourceFacts, checked: CheckedSource) -> CheckResult:
    """Check for changes that are in no event."""
    name, keys = "foreign_keys", facts.keys
    if isinstance(keys, CanalError):
        return skip(name, "foreign keys", str(keys))
    text = key_warning(checked.config.filter, keys)
    if text:
        return warn(name, text)
    return ok(name, "no foreign key changes rows without an event")


def check_unlogged(facts: SourceFacts, _: CheckedSource) -> CheckResult:
    """Check for changes that the server does not log."""
    name, found = "binlog_filters", facts.unlogged
    if isinstance(found, CanalError):
        return skip(name, "what the server logs", str(found))
    if found:
        return warn(name, "; ".join(found))
    return ok(name, "the server logs what the filter matches")

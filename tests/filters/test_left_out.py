"""What an instance's filters keep from a reader of whole tables."""

from __future__ import annotations

import pytest

from canal_server.config.schema import FilterConfig
from canal_server.filters.left_out import left_out

COLUMNS = ("id", "mail", "note")


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        (FilterConfig(), ""),
        (FilterConfig(regex=r"other\..*", unknown_events=True, query_dcl=True), ""),
        (FilterConfig(query_dml=True), ""),
        (
            FilterConfig(black_regex=r"shop\.us.*,a\.b"),
            "everything (canal.instance.filter.black.regex)",
        ),
        (FilterConfig(black_regex=r"shop\.other", field="shop.other:id"), ""),
        (FilterConfig(black_regex="("), ""),
        (
            FilterConfig(black_field="SHOP.users:Mail/note"),
            (
                "columns mail note (canal.instance.filter.field or "
                "canal.instance.filter.black.field)"
            ),
        ),
        (
            FilterConfig(dml_delete=True, query_ddl=True),
            (
                "deletes (canal.instance.filter.dml.delete), "
                "DDL (canal.instance.filter.query.ddl)"
            ),
        ),
    ],
)
def test_left_out(filters: FilterConfig, expected: str) -> None:
    """What is omitted is reported with the setting; an allow list of tables is not.

    A reader's own expression replaces that one.
    """
    assert left_out(filters, "shop", "users", COLUMNS) == expected

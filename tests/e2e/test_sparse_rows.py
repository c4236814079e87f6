"""What clients miss of a source that does not log whole rows (docs/howto/check.md)."""

from __future__ import annotations

import pytest

CREATE = (
    "CREATE TABLE {} (id INT PRIMARY KEY, a INT, k INT DEFAULT 7, made DATETIME"
    " DEFAULT CURRENT_TIMESTAMP, note TEXT)"
)
WRITES = (
    "INSERT INTO {} (id, a) VALUES (1, 10)",
    "INSERT INTO {} (id, a, note) VALUES (2, 20, 'long')",
    "UPDATE {} SET a = 21 WHERE id = 2",
    "DELETE FROM {} WHERE id = 2",
)


def written(pipeline, setting):
    """Return the columns of each row, before and after, of a session that writes."""
    name = f"{pipeline.schema}.t"
    pipeline.source.execute(CREATE.format(name))
    with pipeline.client() as client:
        pipeline.source.execute(
            f"SET SESSION {setting}", *(each.format(name) for each in WRITES)
        )
        # A row that is complete ends it.
        pipeline.source.execute(f"INSERT INTO {name} VALUES (3, 30, 7, NOW(), 'end')")
        rows: list[tuple[dict[str, object], ...]] = []
        while not (rows and rows[-1][1].get("id") == "3"):
            for entry in pipeline.rows(client, 1):
                change = entry.row_change()
                rows += [(row.before, row.after) for row in change.row_datas]
    return [(set(before), set(after)) for before, after in rows[:-1]]


WHOLE = {"id", "a", "k", "made", "note"}


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        (
            "binlog_row_image = 'FULL'",
            [(set(), WHOLE), (set(), WHOLE), (WHOLE, WHOLE), (WHOLE, set())],
        ),
        (
            "binlog_row_image = 'NOBLOB'",
            [
                (set(), WHOLE - {"note"}),
                (set(), WHOLE),
                (WHOLE - {"note"}, WHOLE - {"note"}),
                (WHOLE - {"note"}, set()),
            ],
        ),
        (
            "binlog_row_image = 'MINIMAL'",
            [
                (set(), {"id", "a", "made"}),
                (set(), {"id", "a", "made", "note"}),
                ({"id"}, {"a"}),
                ({"id"}, set()),
            ],
        ),
        ("binlog_format = 'MIXED'", []),
        ("binlog_format = 'STATEMENT'", []),
    ],
)
def test_rows(pipeline, setting, expected):
    """Columns that were not logged are absent, and statements have no rows."""
    assert written(pipeline, setting) == expected

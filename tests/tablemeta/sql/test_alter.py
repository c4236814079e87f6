"""The items of ALTER TABLE: one result each, the first names the entry."""

from __future__ import annotations

import pytest

from canal_server.model.ddl_statement import names_of
from canal_server.model.entry import EventType
from canal_server.tablemeta.sql.statement_classes import classify

A, C, D, R = "ALTER", "CINDEX", "DINDEX", "RENAME"


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ("ADD a INT", [A]),
        ("ADD COLUMN a INT AFTER b", [A]),
        ("ADD COLUMN IF NOT EXISTS a INT", [A]),
        ("ADD COLUMN (a INT, b INT)", [A]),
        ("ADD (a INT, b DECIMAL(10,2))", [A]),
        ("ADD COLUMN a INT DEFAULT 'x,y', ADD b INT", [A, A]),
        ("ADD `index` INT", [A]),
        ("ADD PARTITION (PARTITION p VALUES LESS THAN (1))", [A]),
        ("ADD SYSTEM VERSIONING", [A]),
        ("ADD PERIOD FOR p (a, b)", [A]),
        ("ADD INDEX i (a, b)", [C]),
        ("ADD KEY (a)", [C]),
        ("ADD UNIQUE u (a)", [C]),
        ("ADD FULLTEXT INDEX (a)", [C]),
        ("ADD SPATIAL KEY (a)", [C]),
        ("ADD PRIMARY KEY (a)", [C]),
        ("ADD VECTOR INDEX (a)", [C]),
        ("ADD vector INT", [A]),
        ("ADD INDEX IF NOT EXISTS i (a)", [C]),
        ("ADD CONSTRAINT c PRIMARY KEY (a)", [C]),
        ("ADD CONSTRAINT `unique` UNIQUE (a)", [C]),
        ("ADD CONSTRAINT UNIQUE (a)", [C]),
        ("ADD CONSTRAINT IF NOT EXISTS c UNIQUE (a)", [C]),
        ("ADD CONSTRAINT c FOREIGN KEY (a) REFERENCES u (a)", []),
        ("ADD CHECK (a > 0)", []),
        ("DROP a", [A]),
        ("DROP COLUMN IF EXISTS a", [A]),
        ("DROP PRIMARY KEY", [A]),
        ("DROP CHECK c", [A]),
        ("DROP PARTITION p, q", [A]),
        ("DROP INDEX i", [D]),
        ("DROP KEY IF EXISTS i", [D]),
        ("DROP CONSTRAINT c", [D]),
        ("DROP FOREIGN KEY f", [D]),
        ("RENAME COLUMN a TO b", [A]),
        ("RENAME INDEX a TO b", [A]),
        ("RENAME KEY a TO b", [A]),
        ("RENAME u", [R]),
        ("MODIFY a INT", [A]),
        ("CHANGE COLUMN a b INT", [A]),
        ("ALTER a SET DEFAULT (1, 2)", [A]),
        ("ALTER INDEX i INVISIBLE", [A]),
        ("ORDER BY a, b DESC", [A]),
        ("CONVERT TO CHARACTER SET latin1", [A]),
        ("FORCE", [A]),
        ("ALGORITHM=INPLACE, LOCK=NONE", [A, A]),
        ("ENABLE KEYS", [A]),
        ("DISCARD TABLESPACE", [A]),
        ("REORGANIZE PARTITION a, b INTO (PARTITION c VALUES LESS THAN (3))", [A]),
        ("TRUNCATE PARTITION a, b", [A]),
        ("EXCHANGE PARTITION p WITH TABLE u", [A]),
        ("ENGINE=InnoDB", [A]),
        ("COMMENT 'a,b', AUTO_INCREMENT=5 ROW_FORMAT=DYNAMIC", [A]),
        ("DEFAULT CHARACTER SET utf8mb4", [A]),
        ("UNION=(a, b)", [A]),
        ("WAIT 5 ADD COLUMN a INT", [A]),
        ("NOWAIT ADD INDEX (a)", [C]),
        ("PARTITION BY HASH (a) PARTITIONS 4", []),
        # The first result names the entry.
        ("ADD INDEX i (a), ADD COLUMN b INT", [C, A]),
        ("ADD INDEX i (a), ALGORITHM=INPLACE", [C, A]),
        ("DROP INDEX i, DROP COLUMN a", [D, A]),
        ("DROP PRIMARY KEY, ADD PRIMARY KEY (a)", [A, C]),
        ("ADD COLUMN a INT, RENAME TO u", [A, R]),
        ("ADD FOREIGN KEY (a) REFERENCES u (a), ADD INDEX (a)", [C]),
        # Table options make one result together, before all others.
        ("ADD INDEX i (a), COMMENT='x', ENGINE=InnoDB", [A, C]),
        ("ADD INDEX i (a), ORDER BY a, b", [C, A]),
        ("ORDER BY a, b, ENGINE=InnoDB", [A, A]),
        ("/*!50100 ADD COLUMN a INT */", [A]),
        ("ADD COLUMN a INT /*!80023 INVISIBLE */", [A]),
    ],
)
def test_items(items, expected):
    """Each kind of item has the class that clients of canal know it as."""
    for head in ("ALTER TABLE db.t", "alter ignore table IF EXISTS `db`.`t`"):
        found = classify(f"{head} {items}", "other")
        assert [each.event_type.name for each in found] == expected
        assert all(
            (each.schema, each.table) == ("db", "t")
            for each in found
            if each.event_type is not EventType.RENAME
        )


@pytest.mark.parametrize(
    ("items", "table"),
    [
        ("EXCHANGE PARTITION p WITH TABLE u", ("other", "u")),
        ("EXCHANGE PARTITION p WITH TABLE `x`.`u v` WITHOUT VALIDATION", ("x", "u v")),
        ("CONVERT PARTITION p TO TABLE x.u", ("x", "u")),
        ("CONVERT TABLE u TO PARTITION p VALUES LESS THAN (9)", ("other", "u")),
        ("CONVERT TO CHARACTER SET utf8mb4", None),
        ("EXCHANGE PARTITION p", None),
        ("DROP PARTITION p", None),
    ],
)
def test_table_beside(items, table):
    """A table that exchanges rows with a partition is listed, but not filtered by."""
    found = classify(f"ALTER TABLE db.t {items}", "other", mariadb=True)
    assert [each.beside for each in found] == [table]
    assert names_of(found) == (("db", "t"),)

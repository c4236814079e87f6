"""Tools that alter tables while they are in use: gh-ost, pt-online-schema-change.

What they send to the server is sent here, with rows flowing in between; the copying
is one statement instead of many.
"""

from __future__ import annotations

import json

import pytest
from fix_table_history import SchemaCommand

from canal_server.client import EventType


def ghost(schema):
    """Return what gh-ost does to shop `t`, and the rows that others write meanwhile."""
    t, gho, ghc, old = (
        f"`{schema}`.`{name}`" for name in ("t", "_t_gho", "_t_ghc", "_t_del")
    )
    return [
        f"drop /* gh-ost */ table if exists {gho}",
        f"drop /* gh-ost */ table if exists {old}",
        (
            f"create /* gh-ost */ table {ghc} ("
            " id bigint unsigned auto_increment, last_update timestamp not null DEFAULT"
            " CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP, hint varchar(64) charset"
            " ascii not null, value varchar(4096) charset ascii not null, primary"
            " key(id), unique key hint_uidx(hint)) auto_increment=256 comment='comment'"
        ),
        f"create /* gh-ost */ table {gho} like {t}",
        (
            f"alter /* gh-ost */ table {gho} ADD COLUMN extra int NOT NULL DEFAULT 7"
            " AFTER id, MODIFY note varchar(200), DROP COLUMN gone"
        ),
        (
            f"insert /* gh-ost */ into {ghc} (id, hint, value) values"
            " (NULLIF(1, 0), 'state', 'GhostTableMigrated')"
        ),
        f"insert into {t} values (2, 'b', 20)",
        (
            f"insert /* gh-ost */ ignore into {gho} (`id`, `note`)"
            f" (select `id`, `note` from {t} order by id)"
        ),
        f"insert into {t} values (3, 'c', 30)",
        f"replace /* gh-ost */ into {gho} (`id`, `note`) values (3, 'c')",
        # The lock that makes the swap atomic.
        (
            f"create /* gh-ost */ table {old} (id int auto_increment primary key)"
            " engine=InnoDB comment='ghost-cut-over-sentry'"
        ),
        f"drop /* gh-ost */ table if exists {old}",
        f"rename /* gh-ost */ table {t} to {old}, {gho} to {t}",
        f"insert into {t} (id, note) values (4, 'd')",
        f"drop /* gh-ost */ table if exists {ghc}",
        f"drop /* gh-ost */ table if exists {old}",
        f"update {t} set note = 'dd' where id = 4",
    ]


def percona(schema):
    """Return what pt-online-schema-change does to `t`, and the rows of others."""
    t, new, old = (f"`{schema}`.`{name}`" for name in ("t", "_t_new", "_t_old"))
    return [
        (
            f"CREATE TABLE {new} (\n  `id` int NOT NULL,\n  `note` varchar(20) DEFAULT"
            " NULL,\n  `gone` int DEFAULT NULL,\n  PRIMARY KEY (`id`)\n) ENGINE=InnoDB"
        ),
        (
            f"ALTER TABLE {new} ADD COLUMN extra int NOT NULL DEFAULT 7 AFTER id,"
            " MODIFY note varchar(200), DROP COLUMN gone"
        ),
        (
            f"CREATE TRIGGER `{schema}`.`pt_osc_del` AFTER DELETE ON {t} FOR EACH ROW"
            f" DELETE IGNORE FROM {new} WHERE {new}.`id` <=> OLD.`id`"
        ),
        (
            f"CREATE TRIGGER `{schema}`.`pt_osc_upd` AFTER UPDATE ON {t} FOR EACH ROW"
            f" BEGIN DELETE IGNORE FROM {new} WHERE !(OLD.`id` <=> NEW.`id`) AND"
            f" {new}.`id` <=> OLD.`id`; REPLACE INTO {new} (`id`, `note`) VALUES"
            " (NEW.`id`, NEW.`note`); END"
        ),
        (
            f"CREATE TRIGGER `{schema}`.`pt_osc_ins` AFTER INSERT ON {t} FOR EACH ROW"
            f" REPLACE INTO {new} (`id`, `note`) VALUES (NEW.`id`, NEW.`note`)"
        ),
        f"insert into {t} values (2, 'b', 20)",
        (
            f"INSERT LOW_PRIORITY IGNORE INTO {new} (`id`, `note`) SELECT `id`, `note`"
            f" FROM {t} LOCK IN SHARE MODE /*pt-online-schema-change 1 copy nibble*/"
        ),
        f"insert into {t} values (3, 'c', 30)",
        f"ANALYZE TABLE {new} /* pt-online-schema-change */",
        f"RENAME TABLE {t} TO {old}, {new} TO {t}",
        f"DROP TABLE IF EXISTS {old}",
        f"DROP TRIGGER IF EXISTS `{schema}`.`pt_osc_del`",
        f"DROP TRIGGER IF EXISTS `{schema}`.`pt_osc_upd`",
        f"DROP TRIGGER IF EXISTS `{schema}`.`pt_osc_ins`",
        f"insert into {t} (id, note) values (4, 'd')",
        f"update {t} set note = 'dd' where id = 4",
    ]


def rows_of_t(pipeline, client):
    """Receive until row 4 was updated; return the rows of `t` with their columns."""
    found: list[dict[str, str | None]] = []
    while not found or found[-1].get("note") != "dd":
        for entry in pipeline.rows(client, 1):
            if entry.header.table_name != "t":
                continue
            change = entry.row_change()
            if change.event_type in (EventType.INSERT, EventType.UPDATE):
                found += [row.after for row in change.row_datas]
    return found


EXPECTED = [
    {"id": "1", "note": "a", "gone": "10"},
    {"id": "2", "note": "b", "gone": "20"},
    {"id": "3", "note": "c", "gone": "30"},
    {"id": "4", "extra": "7", "note": "d"},
    {"id": "4", "extra": "7", "note": "dd"},
]


@pytest.mark.parametrize("tool", [ghost, percona])
@pytest.mark.parametrize("afterwards", [False, True], ids=["live", "afterwards"])
def test_columns_before_and_after(
    make_pipeline, source_server, database, capsys, *, tool, afterwards
):
    """Rows have the columns of their time, and the history reports the swap as a diff.

    Whether they are read as they come, or when the tool has long ended.
    """
    name = f"{database}.t"
    pipeline = make_pipeline(
        source_server, database, {"canal.instance.tsdb.dir": "tsdb"}
    )
    statements = [
        f"CREATE TABLE {name} (id int PRIMARY KEY, note varchar(20), gone int)",
        f"INSERT INTO {name} VALUES (1, 'a', 10)",
        *tool(database),
    ]
    if afterwards:
        source_server.execute(*statements)
        statements = []
    pipeline.start()
    with pipeline.client() as client:
        source_server.execute(*statements)
        rows = rows_of_t(pipeline, client)
    # Also the order of columns is that of the table.
    assert [list(row.items()) for row in rows] == [
        list(row.items()) for row in EXPECTED
    ]

    schema = SchemaCommand(pipeline.conf, capsys)
    schema("verify", "--table", rf"{database}\..*")
    assert "1 table compared, none differ" in schema.out
    lines = [
        json.loads(line)["lines"]
        for line in schema("history", "--table", name, "--format", "json").splitlines()
    ]
    integer = "int" if source_server.flavour == "mysql" else "int(11)"
    assert lines[-1] == [
        f"- gone {integer}",
        f"+ extra {integer} not null after id",
        "~ note: varchar(20) → varchar(200)",
    ]

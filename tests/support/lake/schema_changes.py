"""Statements of gh-ost on a table `orders` of a mirrored schema."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fix_mirror_process import MirrorProcess


def run(mirror: MirrorProcess, *statements: str) -> None:
    """Run statements in the schema of a mirror."""
    mirror.source.execute(f"USE {mirror.pipeline.schema}", *statements)


def gh_ost(mirror: MirrorProcess, alter: str, columns: str) -> Iterator[str]:
    """Yield statements as gh-ost sends them; the caller runs each.

    It reads the changes since its copy began from the binlog, and applies them by
    REPLACE and DELETE: the second pass stands for that.
    """
    schema = mirror.pipeline.schema
    yield (
        f"create /* gh-ost */ table `{schema}`.`_orders_ghc` (id bigint unsigned "
        "auto_increment, last_update timestamp not null default current_timestamp on "
        "update current_timestamp, hint varchar(64) charset ascii not null, value "
        "varchar(4096) charset ascii not null, primary key (id), unique key "
        "hint_uidx (hint)) auto_increment = 256 comment = 'canal'"
    )
    yield f"create /* gh-ost */ table `{schema}`.`_orders_gho` like `{schema}`.`orders`"
    yield f"alter /* gh-ost */ table `{schema}`.`_orders_gho` {alter}"
    yield (
        f"insert /* gh-ost `{schema}`.`orders` */ ignore into `{schema}`.`_orders_gho` "
        f"({columns}) (select {columns} from `{schema}`.`orders` force index "
        "(`PRIMARY`) where id <= 700 lock in share mode)"
    )
    yield (
        f"insert /* gh-ost `{schema}`.`orders` */ ignore into `{schema}`.`_orders_gho` "
        f"({columns}) (select {columns} from `{schema}`.`orders` force index "
        "(`PRIMARY`) where id > 700 lock in share mode)"
    )


def cut_over(mirror: MirrorProcess, columns: str) -> None:
    """Exchange the tables as gh-ost does, while nobody else can write."""
    schema = mirror.pipeline.schema
    run(
        mirror,
        f"create /* gh-ost */ table `{schema}`.`_orders_del` (id int auto_increment "
        "primary key) engine = InnoDB comment = 'ghost-cut-over-sentry'",
    )
    with mirror.source.connect(database=schema) as holding, holding.cursor() as first:
        first.execute(
            f"lock /* gh-ost */ tables `{schema}`.`orders` write, "
            f"`{schema}`.`_orders_del` write, `{schema}`.`_orders_gho` write"
        )
        first.execute(
            f"replace /* gh-ost */ into `{schema}`.`_orders_gho` ({columns}) select "
            f"{columns} from `{schema}`.`orders`"
        )
        first.execute(
            f"delete /* gh-ost */ from `{schema}`.`_orders_gho` where id not in "
            f"(select id from `{schema}`.`orders`)"
        )
        connection = mirror.source.connect(database=schema)
        renaming = threading.Thread(
            target=connection.cursor().execute,
            args=(
                (
                    f"rename /* gh-ost */ table `{schema}`.`orders` to "
                    f"`{schema}`.`_orders_del`, `{schema}`.`_orders_gho` to "
                    f"`{schema}`.`orders`"
                ),
            ),
        )
        renaming.start()
        with mirror.source.connect(database=schema) as looking:
            cursor = looking.cursor()
            waits = (
                "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE INFO LIKE "
                "'rename /* gh-ost%' AND STATE LIKE 'Waiting for table%'"
            )
            while not cursor.execute(waits) or not cursor.fetchone()[0]:
                assert renaming.is_alive()
        first.execute(f"drop /* gh-ost */ table `{schema}`.`_orders_del`")
        first.execute("unlock tables")
        renaming.join()
        connection.close()
    run(mirror, f"drop /* gh-ost */ table `{schema}`.`_orders_ghc`")

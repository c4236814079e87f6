"""Sources as cloud services run them, and the settings that the manual names for them.

The servers are ours: what the services do to them is done here by statements.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fake_mysql import account

from canal_server import cli
from canal_server.model.positions import binlog_file_number

if TYPE_CHECKING:
    from collections.abc import Callable

    from fix_pipeline import Pipeline
    from servers import PrivateServer

HIDDEN = "__#alibaba_rds_row_id#__"
OF_SERVICES = ("mysql.rds_heartbeat2", "mysql.ha_health_check")
REPLICATE = "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO 'reader'@'%'"
SELECT_SHOP = "GRANT SELECT ON shop.* TO 'reader'@'%'"
READER = {
    "canal.instance.dbUsername": "reader",
    "canal.instance.dbPassword": "secret",
}
ALL_TABLES = {"canal.instance.filter.regex": r".*\..*"}
AS_DOCUMENTED: dict[str, object] = {"canal.instance.filter.black.regex": r"mysql\..*"}


def test_tables_of_the_service(
    own_server: Callable[[str], PrivateServer],
    make_pipeline: Callable[..., Pipeline],
) -> None:
    """An account without SELECT on the service's tables reads the others.

    Their rows stop a destination that is to deliver them. Left out as the manual says,
    they advance the position while nothing else is written.
    """
    source = own_server("mysql")
    source.execute("CREATE DATABASE shop", "CREATE TABLE shop.t (a INT PRIMARY KEY)")
    for table in OF_SERVICES:
        source.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, value BIGINT)")
    with account(source, "reader", "IDENTIFIED BY 'secret'", SELECT_SHOP):
        source.execute(REPLICATE)
        pipeline = make_pipeline(source, "shop", {**READER, **ALL_TABLES})
        pipeline.start()
        for table in OF_SERVICES:
            source.execute(f"INSERT INTO {table} VALUES (1, 1)")
        line = pipeline.process.wait_for_log("ERROR .*rds_heartbeat2")
        assert "the account lacks SELECT on it" in line
        assert "canal.instance.filter.black.regex" in line
        pipeline.stop()
        pipeline.configure(AS_DOCUMENTED)
        assert cli.main(["check", "--conf", str(pipeline.conf)]) == 0
        pipeline.start()
        with pipeline.client() as client:
            source.execute("INSERT INTO shop.t VALUES (7)")
            (row,) = pipeline.rows(client, 1)
            assert row.header.table_name == "t"
            file, offset = source.binlog_position()
            before = binlog_file_number(file), offset
            for table in OF_SERVICES:
                source.execute(f"UPDATE {table} SET value = value + 1")
            pipeline.wait_for_status(lambda _: reached(pipeline) >= before)
        pipeline.stop()


def reached(pipeline: Pipeline) -> tuple[int, int]:
    """Return how far the destination has read the binlog."""
    file, _, offset = pipeline.status()["position"].partition(":")
    return binlog_file_number(file), int(offset)


def test_a_hidden_column(
    own_server: Callable[[str], PrivateServer], make_pipeline: Callable[..., Pipeline]
) -> None:
    """Rows with a column that the server does not show stop a destination.

    With the documented setting they are left out, and other tables are delivered. The
    column is hidden here by dropping it again, without a statement in the binlog.
    """
    source = own_server("mysql")
    source.execute(
        "CREATE DATABASE shop",
        "CREATE TABLE shop.bare (a INT)",
        "CREATE TABLE shop.kept (a INT PRIMARY KEY)",
    )
    pipeline = make_pipeline(source, "shop")
    source.execute(
        "SET sql_log_bin = 0",
        f"ALTER TABLE shop.bare ADD `{HIDDEN}` BIGINT AUTO_INCREMENT PRIMARY KEY",
        "SET sql_log_bin = 1",
        "INSERT INTO shop.bare (a) VALUES (1)",
        "SET sql_log_bin = 0",
        f"ALTER TABLE shop.bare DROP COLUMN `{HIDDEN}`",
        "SET sql_log_bin = 1",
        "INSERT INTO shop.kept VALUES (2)",
    )
    pipeline.start()
    pipeline.process.wait_for_log("ERROR .*column size is not match for table")
    pipeline.stop()
    pipeline.configure({"canal.instance.filter.table.error": "true"})
    pipeline.start()
    with pipeline.client() as client:
        (row,) = pipeline.rows(client, 1)
    assert row.header.table_name == "kept"
    pipeline.process.wait_for_log("WARNING .*shop.bare")

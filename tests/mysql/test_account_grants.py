"""The privileges of an account, from the rows of SHOW GRANTS."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from fake_mysql import account
from fix_source_access import access_of

from canal_server.errors import ConnectionLost, SourceRefused
from canal_server.mysql.account_grants import parse_grants, read_grants
from canal_server.mysql.control_connection import ControlConnection


@pytest.mark.parametrize(
    ("row", "has"),
    [
        ("GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO `u`@`%`", True),
        ("GRANT ALL PRIVILEGES ON *.* TO `u`@`%` WITH GRANT OPTION", True),
        ("GRANT replication slave ON *.* TO 'u'@'h' IDENTIFIED BY PASSWORD 'x'", True),
        ("GRANT REPLICATION SLAVE ADMIN ON *.* TO `u`@`%`", False),
        ("GRANT REPLICATION_SLAVE_ADMIN ON *.* TO `u`@`%`", False),
        ("GRANT USAGE ON *.* TO `u`@`%`", False),
        ("GRANT ALL PRIVILEGES ON `REPLICATION SLAVE`.* TO `u`@`%`", False),
    ],
)
def test_global_privileges(row, has):
    """They are those on everything, by their whole name, or all of them."""
    grants = parse_grants([row])
    assert grants.has_global("REPLICATION SLAVE") is has
    assert grants.is_whole


@pytest.mark.parametrize(
    ("rows", "table", "has"),
    [
        (["GRANT SELECT ON *.* TO `u`@`%`"], "shop.orders", True),
        (["GRANT SELECT ON `shop`.* TO `u`@`%`"], "shop.orders", True),
        (["GRANT SELECT ON `shop`.* TO `u`@`%`"], "shop2.orders", False),
        (["GRANT SELECT, INSERT ON `shop`.`orders` TO `u`@`%`"], "shop.orders", True),
        (["GRANT SELECT ON `shop`.`orders` TO `u`@`%`"], "shop.items", False),
        (["GRANT INSERT ON `shop`.`orders` TO `u`@`%`"], "shop.orders", False),
        (["GRANT SELECT (`id`, `n`) ON `shop`.`t` TO `u`@`%`"], "shop.t", False),
        (["GRANT SELECT ON `sh%`.* TO `u`@`%`"], "shop.orders", True),
        ([r"GRANT SELECT ON `s\_p`.* TO `u`@`%`"], "s_p.t", True),
        ([r"GRANT SELECT ON `s\_p`.* TO `u`@`%`"], "sop.t", False),
        (["GRANT SELECT ON `s_p`.* TO `u`@`%`"], "sop.t", True),
        (["GRANT SELECT ON `a``b`.`c` TO `u`@`%`"], "a`b.c", True),
        (
            [
                "GRANT SELECT ON *.* TO `u`@`%`",
                "REVOKE SELECT ON `shop`.* FROM `u`@`%`",
            ],
            "shop.orders",
            False,
        ),
    ],
)
def test_privileges_on_tables(rows, table, has):
    """They come from everything, a pattern of schemas or the table, not columns."""
    grants = parse_grants(rows)
    schema, _, name = table.partition(".")
    assert grants.has("SELECT", schema, name) is has
    assert grants.lacks("SELECT", schema, name) is not has


@pytest.mark.parametrize(
    ("row", "is_whole"),
    [
        ("GRANT `role`@`%` TO `u`@`%`", True),
        ("GRANT `role` TO `u`@`%` WITH ADMIN OPTION", True),
        ("SET DEFAULT ROLE `role` FOR `u`@`%`", True),
        ("GRANT PROXY ON ``@`` TO `root`@`localhost` WITH GRANT OPTION", True),
        ("GRANT EXECUTE ON PROCEDURE `shop`.`p` TO `u`@`%`", True),
        ('GRANT SELECT ON "shop".* TO "u"@"%"', False),
        ("something else", False),
    ],
)
def test_other_rows(row, is_whole):
    """Rows about roles and programs do not matter; unknown ones leave doubts."""
    grants = parse_grants([row])
    assert grants.is_whole is is_whole
    assert grants.lacks("SELECT", "shop", "orders") is is_whole


def test_active_roles_count(source_server, database):
    """A privilege of an active role is in force, that of another role is not."""
    name, role = f"u{database[-8:]}", f"r{database[-8:]}"
    default = (
        f"SET DEFAULT ROLE '{role}' TO '{name}'@'%'"
        if source_server.flavour == "mysql"
        else f"SET DEFAULT ROLE '{role}' FOR '{name}'@'%'"
    )
    source_server.execute(
        f"CREATE ROLE '{role}'", f"GRANT REPLICATION SLAVE ON *.* TO '{role}'"
    )
    grant = f"GRANT '{role}' TO '{name}'@'%'"
    try:
        with account(source_server, name, "IDENTIFIED BY 'x'", grant):
            access = access_of(source_server, user=name, password="x")
            found = []
            for statement in ("DO 1", default):
                source_server.execute(statement)
                with ControlConnection(access) as control:
                    grants = read_grants(control)
                assert grants is not None
                assert grants.is_whole
                found.append(grants.has_global("REPLICATION SLAVE"))
        assert found == [False, True]
    finally:
        source_server.execute(f"DROP ROLE '{role}'")


def test_a_server_that_does_not_show_grants(source):
    """Grants that are refused are unknown; a lost connection is an error."""

    def refused(sql, *_):
        raise SourceRefused(sql)

    def lost(sql, *_):
        raise ConnectionLost(sql)

    asked: Any = SimpleNamespace(access=source.access, query=refused)
    assert read_grants(asked) is None
    asked.query = lost
    with pytest.raises(ConnectionLost):
        read_grants(asked)

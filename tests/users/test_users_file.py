"""users.yml: what it may say, what is refused, and what is written back."""

from __future__ import annotations

import re

import pytest

from canal_server.errors import ConfigError
from canal_server.protocol.auth import stored_form
from canal_server.users.rights import ColumnRule, ReadRule, Right, ShownColumns, User
from canal_server.users.users_file import parse_users, read_users, users_text

HASH = stored_form("secret")
EXAMPLE = rf"""
users:
  reporting:
    password: "*{HASH.upper()}"
    certificates:
      - "subject=CN=reporting, O=Example"
      - "DNS:Reader.Example.com"
      - ip:192.0.2.1
    connections: 20
    read:
      - destination: shop_*
        tables: shop\.orders,shop\.items
        columns: shop.items:id/name
        remove_columns: shop.orders:card/cvc
        mask_columns: shop.orders:email
        clients: [1001, 2000-2099]
        subscriptions: [reporting_*]
      - destination: stock
    ranges: [shop_eu]
    observe: ["*"]
  operator:
    password: {HASH}
    operate: [shop_*]
"""


def problems(text: str) -> list[str]:
    """Return what is wrong with a file."""
    with pytest.raises(ConfigError) as refused:
        parse_users(text, "users.yml")
    return refused.value.problems


def test_example():
    """Everything that a file may say of a user is read, and says what it means."""
    users = parse_users(EXAMPLE, "users.yml")
    one = users["reporting"]
    assert one == User(
        "reporting",
        HASH,
        ("CN=reporting,O=Example", "dns:reader.example.com", "ip:192.0.2.1"),
        (
            ReadRule(
                "shop_*",
                r"shop\.orders,shop\.items",
                "shop.items:id/name",
                "shop.orders:card/cvc",
                "shop.orders:email",
                ((1001, 1001), (2000, 2099)),
                ("reporting_*",),
            ),
            ReadRule("stock"),
        ),
        ("shop_eu",),
        (),
        ("*",),
        20,
    )
    assert [one.may(Right.READ, each) for each in ("shop_eu", "shop", "stock")] == [
        True, False, True,
    ]  # fmt: skip
    assert [one.may(Right.RANGES, each) for each in ("shop_eu", "stock")] == [
        True,
        False,
    ]
    assert not one.may(Right.OPERATE, "stock")
    assert one.may(Right.OBSERVE, "anything")
    assert users["operator"].may(Right.OBSERVE, "shop_us")
    assert not users["operator"].may(Right.READ, "shop_us")


def test_written_and_read_again():
    """What is written is read as the same users."""
    users = parse_users(EXAMPLE, "users.yml")
    text = users_text(users.values())
    assert parse_users(text, "again") == users
    assert text.startswith("#")


def test_empty():
    """A file without users lets nobody in, and is no error."""
    assert parse_users("", "users.yml") == {}
    assert parse_users("users:\n", "users.yml") == {}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("users: [a]", "users.yml:1:8: users: write keys with values"),
        ("user:\n  a: {}", "users.yml:1:1: user is not known; did you mean users?"),
        (
            "users:\n  a:b: {password: x}",
            "a name has 1 to 64 characters without colons, all printable",
        ),
        ('users: {"a\\x9bb": {}}', "without colons, all printable"),
        ('users: {"a\\u202eb": {}}', "without colons, all printable"),
        ("users:\n  a: {password: hunter2}", "40 hexadecimal digits"),
        ("users:\n  a: {rights: all}", "users.a.rights is not known; known keys:"),
        ("users:\n  a: {read: [x]}", "users.a.read[0]: write keys with values"),
        (
            "users:\n  a: {read: [{tables: x}]}",
            "users.a.read[0].destination is missing",
        ),
        ("users:\n  a: {read: [{destination: x, tables: '('}]}", "tables = '('"),
        (
            "users:\n  a: {read: [{destination: x, mask_columns: orders.card}]}",
            "'orders.card' is not of the form schema.table:column/column",
        ),
        *(
            (
                f"users:\n  a: {{read: [{{destination: x, {key}: '{wrong}'}}]}}",
                "is not of the form schema.table:column/column",
            )
            for key in ("remove_columns", "mask_columns")
            for wrong in (
                r"shop\.orders:card",
                "shop.*:card",
                "shop.orders:*",
                "shop.(orders|items):card",
                "`shop`.`orders`:card",
                "shop.orders:\u200bcard",
                "shop.orders:card,",
                "shop.orders:card/",
                "shop.orders:card:email",
            )
        ),
        (
            "users:\n  a: {read: [{destination: x, clients: [40000]}]}",
            "'40000' is not within 0 to 32767",
        ),
        (
            "users:\n  a: {read: [{destination: x, clients: [x]}]}",
            "'x' is not a client id, nor a range such as 2000-2099",
        ),
        *(
            (
                f"users:\n  a: {{read: [{{destination: x, {key}: {empty}}}]}}",
                f"users.a.read[0].{key} = ",
            )
            for key, empty in (
                ("tables", ""),
                ("tables", "''"),
                ("columns", "null"),
                ("remove_columns", "''"),
                ("mask_columns", "~"),
                ("clients", "[]"),
                ("subscriptions", ""),
            )
        ),
        (
            "users:\n  a: {certificates: [reader]}",
            "'reader' is no name of a certificate",
        ),
        ("users:\n  a: {ranges: ['*']}", "ranged reads of '*' need the right to read"),
        (
            "users:\n  a: {certificates: [dns:x]}\n  b: {certificates: [dns:X]}",
            "certificate 'dns:x' is of user 'a' and of user 'b': name it once",
        ),
    ],
)
def test_problems(text, problem):
    """Each mistake is named with its line, and never with a password."""
    found = problems(text)
    assert any(problem in each for each in found), found
    assert all(each.startswith("users.yml:") for each in found)
    assert "hunter2" not in str(found)


@pytest.mark.parametrize(
    "text",
    [
        "shop.orders:card,shop.orders:email",
        "shop.orders:card, SHOP.orders : email",
        " shop.orders:Card / email ",
        "shop.orders:card\n,shop.orders:email\n",
    ],
)
@pytest.mark.parametrize("key", ["columns", "remove_columns", "mask_columns"])
def test_lists_of_columns(key, text):
    """Blanks in a list do not count, and a table that is named twice has both lists."""
    quoted = text.replace("\n", "\\n")
    (user,) = parse_users(
        f'users: {{a: {{read: [{{destination: x, {key}: "{quoted}"}}]}}}}', "users.yml"
    ).values()
    shown = ShownColumns(user.read[0])
    rules = [
        shown.column_rule("Shop", "orders", each) for each in ("id", "card", "EMAIL")
    ]
    removed, masked = ColumnRule.REMOVED, ColumnRule.MASKED
    assert (
        rules
        == {
            "columns": [removed, ColumnRule.SHOWN, ColumnRule.SHOWN],
            "remove_columns": [ColumnRule.SHOWN, removed, removed],
            "mask_columns": [ColumnRule.SHOWN, masked, masked],
        }[key]
    )
    again = parse_users(users_text([user]), "again")
    assert again == {"a": user}


def test_removed_although_listed():
    """A column that is removed is not shown, even if `columns` lists it as well."""
    rule = ReadRule("*", columns="s.t:id/card", removed="s.t:card")
    assert ShownColumns(rule).column_rule("s", "t", "card") is ColumnRule.REMOVED
    assert ShownColumns(rule).column_rule("s", "t", "id") is ColumnRule.SHOWN
    assert ShownColumns(rule).column_rule("s", "t", "x") is ColumnRule.REMOVED


@pytest.mark.parametrize("mode", [0o644, 0o660, 0o604, 0o620])
def test_mode(tmp_path, mode):
    """A file that others may read is refused, and says what to do."""
    path = tmp_path / "users.yml"
    path.write_text(EXAMPLE)
    path.chmod(0o600)
    assert set(read_users(path)) == {"reporting", "operator"}
    path.chmod(mode)
    with pytest.raises(ConfigError, match=re.escape(f"chmod 600 {path}")):
        read_users(path)


def test_missing_file(tmp_path):
    """A missing file is named with the key."""
    path = tmp_path / "users.yml"
    with pytest.raises(ConfigError, match=re.escape(f"canal.users.file = {path}")):
        read_users(path)

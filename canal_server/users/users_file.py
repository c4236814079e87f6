r"""Reads and writes users.yml, in which users and their rights are.

::

    users:
      reporting:
        password: 6bb4837eb74329105ee4568dda7dc67ed2ca2ad9
        certificates: ["CN=reporting,O=Example"]
        read:
          - destination: "shop*"
            tables: shop\.orders,shop\.items
            remove_columns: shop.orders:card
        ranges: ["shop*"]
        observe: ["*"]
"""

from __future__ import annotations

import os
import re
import stat
from typing import TYPE_CHECKING, Final, TypeVar

from canal_server.config.values import password_hash
from canal_server.doors import yaml_document
from canal_server.errors import ConfigError
from canal_server.model.quoted import quoted
from canal_server.runtime.private_files import read_whole, reason_of
from canal_server.tls.certificate_names import checked_name
from canal_server.users.rights import ReadRule, ShownColumns, User

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from canal_server.doors.yaml_document import Section

T = TypeVar("T")

KEY: Final = "canal.users.file"
CONNECTIONS_MAX: Final = 100_000
CLIENT_ID_MAX: Final = 2**15 - 1
_NAME: Final = re.compile(r"[^:]{1,64}")
_IDS: Final = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?", re.ASCII)
# A pattern or a quoted name is the name of no table: the list would have no effect, and
# show what it is meant to hide.
_TABLE: Final = re.compile(r"[^\\*+?()\[\]{}|^`.]+\.[^\\*+?()\[\]{}|^`]+")
_COLUMN: Final = re.compile(r"[^\\*`]+")
_HEADER: Final = """\
# The users of this canal-server and their rights, see docs/howto/users.md.
# `canal-server user` writes this file; it does not keep comments.
"""


# --------------------------------------------------------------------------------
# Reading
# --------------------------------------------------------------------------------


def read_users(path: Path) -> dict[str, User]:
    """Return the users of a file by name. Raises ConfigError with all its problems."""
    try:
        _check_mode(path)
        text = read_whole(path).decode()
    except FileNotFoundError as error:
        raise ConfigError(
            [f"{KEY} = {path}: file not found; {_adding(path)}"]
        ) from error
    except OSError as error:
        raise ConfigError(
            [
                (
                    f"{KEY} = {path}: cannot read: {reason_of(error)}; the account that"
                    " runs the server must own the file, with mode 0600"
                )
            ]
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError([f"{KEY} = {path}: not UTF-8 text"]) from error
    return parse_users(text, str(path))


def _adding(path: Path) -> str:
    return f"add a user with `canal-server user add --file {path} NAME`"


def parse_users(text: str, name: str) -> dict[str, User]:
    """Return the users in the text of a file by this name. Raises ConfigError."""
    document = yaml_document.Document(name, text, os.environ)
    section = document.root.section("users")
    users = {}
    for each in section.names():
        if not (_NAME.fullmatch(each) and each.isprintable()):
            section.problem(
                each, "a name has 1 to 64 characters without colons, all printable"
            )
        users[each] = _user(each, section.section(each))
    document.root.finish()
    problems = document.problems() or _duplicates(name, users.values())
    if problems:
        raise ConfigError(problems)
    return users


def _user(name: str, section: Section) -> User:
    user = User(
        name,
        section.read("password", password_hash, "", hidden=True),
        tuple(_each(section, "certificates", checked_name)),
        tuple(_read_rules(section)),
        section.texts("ranges"),
        section.texts("operate"),
        section.texts("observe"),
        section.whole("connections", 0, 0, CONNECTIONS_MAX),
    )
    section.finish()
    for pattern in user.ranges:
        if not user.read:
            section.problem(
                "ranges",
                f"ranged reads of {pattern!r} need the right to read: add `read`",
            )
            break
    return user


def _read_rules(section: Section) -> Iterable[ReadRule]:
    section.ask("read")
    if not section.has("read"):
        return
    for rule in section.sections("read", "write a list of rules with `destination`"):
        found = ReadRule(
            rule.text("destination", required="write a name, or a pattern such as *"),
            rule.text("tables"),
            rule.read("columns", _column_list, ""),
            rule.read("remove_columns", _column_list, ""),
            rule.read("mask_columns", _column_list, ""),
            tuple(_each(rule, "clients", client_ids)),
            rule.texts("subscriptions"),
        )
        rule.finish()
        _check_limits(rule, found)
        try:
            ShownColumns(found)
        except ValueError as error:
            rule.problem("tables", str(error))
            continue
        yield found


def _check_limits(rule: Section, found: ReadRule) -> None:
    """Add a problem for each limit without a value, which would be none.

    It may be there because a template or an edit went wrong.
    """
    limits = {
        "tables": found.tables,
        "columns": found.columns,
        "remove_columns": found.removed,
        "mask_columns": found.masked,
        "clients": found.clients,
        "subscriptions": found.subscriptions,
    }
    for key in rule.names():
        if key in limits and not limits[key]:
            rule.problem(key, "no value, which would be no limit; leave the key out")


def _each(section: Section, key: str, parse: Callable[[str], T]) -> Iterable[T]:
    """Yield the values of a list; its problems are added."""
    for text in section.texts(key):
        try:
            yield parse(text)
        except ValueError as error:
            section.problem(key, str(error))


def _column_list(text: str) -> str:
    """Return a list of columns with each table once. Raises ValueError."""
    found: dict[str, tuple[str, list[str]]] = {}
    for item in text.split(","):
        table, _, rest = (each.strip() for each in item.partition(":"))
        columns = [each.strip() for each in rest.split("/")]
        if not (
            _TABLE.fullmatch(table)
            and all(map(_COLUMN.fullmatch, columns))
            and ":" not in rest
            and item.strip().isprintable()
        ):
            raise ValueError(
                f"{quoted(item)} is not of the form schema.table:column/column; names"
                " contain no patterns and no quotes"
            )
        found.setdefault(table.upper(), (table, []))[1].extend(columns)
    return ",".join(f"{table}:{'/'.join(names)}" for table, names in found.values())


def client_ids(text: str) -> tuple[int, int]:
    """Return the first and the last of some client ids. Raises ValueError."""
    found = _IDS.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a client id, nor a range such as 2000-2099")
    first, last = int(found[1]), int(found[2] or found[1])
    if not first <= last <= CLIENT_ID_MAX:
        raise ValueError(f"{text!r} is not within 0 to {CLIENT_ID_MAX}")
    return first, last


def _duplicates(name: str, users: Iterable[User]) -> list[str]:
    """Return a problem for each certificate that names two users."""
    owners: dict[str, str] = {}
    problems = []
    for user in users:
        for each in user.certificates:
            owner = owners.setdefault(each, user.name)
            if owner != user.name:
                problems.append(
                    f"{name}: certificate {each!r} is of user {owner!r} and of user"
                    f" {user.name!r}: name it once"
                )
    return problems


def _check_mode(path: Path) -> None:
    """Refuse a file that others may read or write, as it holds hashes of passwords.

    A file of root may be readable by our group, as Kubernetes mounts secrets.
    """
    found, own_id = path.stat(), os.geteuid()
    allowed = 0o700 if found.st_uid == own_id or found.st_uid else 0o750
    if own_id and found.st_uid not in (own_id, 0):
        raise ConfigError(
            [f"{KEY} = {path}: belongs to another user of this host: run chown"]
        )
    mode = stat.S_IMODE(found.st_mode)
    if mode & ~allowed:
        problem = f"mode {mode:04o} lets others read or change it: run chmod 600 {path}"
        raise ConfigError([f"{KEY} = {path}: {problem}"])


# --------------------------------------------------------------------------------
# Writing
# --------------------------------------------------------------------------------


def users_text(users: Iterable[User]) -> str:
    """Return the text of a file with these users."""
    content = {each.name: content_of(each) for each in users}
    return _HEADER + yaml_document.written({"users": content})


def content_of(user: User) -> dict[str, object]:
    """Return what the file has of a user, without what is empty."""
    rules = [
        {
            "destination": rule.destination,
            "tables": rule.tables,
            "columns": rule.columns,
            "remove_columns": rule.removed,
            "mask_columns": rule.masked,
            "clients": [
                str(first) if first == last else f"{first}-{last}"
                for first, last in rule.clients
            ],
            "subscriptions": list(rule.subscriptions),
        }
        for rule in user.read
    ]
    content: dict[str, object] = {
        "password": user.password_hash,
        "certificates": list(user.certificates),
        "read": [
            {key: value for key, value in rule.items() if value} for rule in rules
        ],
        "ranges": list(user.ranges),
        "operate": list(user.operate),
        "observe": list(user.observe),
        "connections": user.connections_max,
    }
    return {key: value for key, value in content.items() if value}

"""`canal-server user`: what it writes, prints and refuses."""

from __future__ import annotations

import io
import json
import os
import stat

import pytest

from canal_server.cli import main
from canal_server.protocol.auth import stored_form
from canal_server.users.rights import ReadRule, User
from canal_server.users.users_file import read_users


@pytest.fixture
def conf(tmp_path):
    """Give a conf folder that names a file of users."""
    folder = tmp_path / "conf"
    folder.mkdir()
    (folder / "canal.properties").write_text("canal.users.file = users.yml\n")
    return folder


@pytest.fixture
def user(conf, monkeypatch, capsys):
    """Give a function that runs an action with a password on standard input."""

    def run(*arguments, password="secret"):
        action, *others = arguments
        text = "" if password is None else f"{password}\n"
        monkeypatch.setattr("sys.stdin", io.StringIO(text))
        status = main(["user", action, "--conf", str(conf), *others])
        output = capsys.readouterr()
        return status, output.out, output.err

    return run


def test_life_of_a_user(conf, user):
    """A user is added with all rights of the options, listed, changed and removed."""
    status, out, _ = user(
        "add", "reporting", "--read", "shop_*", "--read", "stock",
        "--tables", r"shop\.orders", "--remove-columns", "shop.orders:card",
        "--mask-columns", "shop.orders:email", "--client", "1001",
        "--client", "2000-2099", "--subscription", "r_*", "--ranges", "shop_*",
        "--observe", "*", "--certificate", "CN=reporting,O=Example",
        "--connections", "5", "--password-stdin",
    )  # fmt: skip
    path = conf / "users.yml"
    assert (status, out) == (0, f"user reporting was added to {path}\n")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    limits = (
        r"shop\.orders", "", "shop.orders:card", "shop.orders:email",
        ((1001, 1001), (2000, 2099)), ("r_*",),
    )  # fmt: skip
    assert read_users(path) == {
        "reporting": User(
            "reporting",
            stored_form("secret"),
            ("CN=reporting,O=Example",),
            (ReadRule("shop_*", *limits), ReadRule("stock", *limits)),
            ("shop_*",),
            (),
            ("*",),
            5,
        )
    }

    assert user("passwd", "reporting", "--password-stdin", password="other")[0] == 0
    assert read_users(path)["reporting"].password_hash == stored_form("other")
    status, out, _ = user(
        "add", "bot", "--operate", "*", "--certificate", "dns:bot", "--no-password"
    )
    assert status == 0
    status, out, _ = user("list")
    assert out == (
        "reporting\n"
        "  log-in: password, CN=reporting,O=Example\n"
        "  read: shop_* (tables shop\\.orders; without shop.orders:card;"
        " masked shop.orders:email; clients 1001, 2000-2099; subscriptions r_*)\n"
        "  read: stock (tables shop\\.orders; without shop.orders:card;"
        " masked shop.orders:email; clients 1001, 2000-2099; subscriptions r_*)\n"
        "  ranges: shop_*\n"
        "  observe: *\n"
        "  connections: 5\n"
        "bot\n"
        "  log-in: dns:bot\n"
        "  operate: *\n"
    )
    _, out, _ = user("list", "--json")
    first, second = json.loads(out)["users"]
    assert first["has_password"] is True
    assert second == {
        "name": "bot", "has_password": False, "certificates": ["dns:bot"],
        "operate": ["*"],
    }  # fmt: skip
    assert stored_form("other") not in out

    assert user("remove", "reporting")[0] == 0
    assert set(read_users(path)) == {"bot"}


def test_repeated_limits(conf, user):
    """A limit that is given twice has the lists of both."""
    status, _, _ = user(
        "add", "a", "--read", "*", "--tables", r"s\.a", "--tables", r"s\.b",
        "--columns", "s.a:id", "--columns", "s.b:id", "--remove-columns", "s.c:x",
        "--remove-columns", "s.c:y", "--mask-columns", "s.d:x", "--mask-columns",
        "s.e:y", "--password-stdin",
    )  # fmt: skip
    assert status == 0
    assert read_users(conf / "users.yml")["a"].read == (
        ReadRule("*", r"s\.a,s\.b", "s.a:id,s.b:id", "s.c:x/y", "s.d:x,s.e:y"),
    )


@pytest.mark.parametrize(
    ("arguments", "status", "problem"),
    [
        (["add", "a"], 2, "the user would have no rights: add --read"),
        (["add", "a", "--read", "*"], 2, "no terminal to ask for the password"),
        (["add", "a", "--tables", "x"], 2, "--tables needs --read"),
        *(
            (["add", "a", "--read", "*", option, empty], 2, f"{option} is empty")
            for option in ("--tables", "--remove-columns", "--mask-columns")
            for empty in ("", " ")
        ),
        (
            ["add", "a", "--read", "*", "--client", "x"],
            2,
            "--client 'x' is not a client",
        ),
        (
            ["add", "a", "--observe", "*", "--certificate", "x"],
            2,
            "--certificate 'x' is",
        ),
        (["add", "a", "--observe", "*", "--no-password"], 2, "needs --certificate"),
        (
            ["add", "a:b", "--observe", "*", "--password-stdin"],
            2,
            "a name has 1 to 64 characters without colons",
        ),
        (
            ["add", "a", "--read", "*", "--tables", "(", "--password-stdin"],
            2,
            "users.a.read[0].tables = '('",
        ),
        (
            ["add", "known", "--observe", "*", "--password-stdin"],
            1,
            "user 'known' is in",
        ),
        (["passwd", "a", "--password-stdin"], 1, "user 'a' is not in"),
        (["remove", "a"], 1, "user 'a' is not in"),
    ],
)
def test_refused(conf, user, arguments, status, problem):
    """What cannot be is refused with the remedy, and the file stays as it was."""
    assert user("add", "known", "--observe", "*", "--password-stdin")[0] == 0
    before = (conf / "users.yml").read_bytes()
    found, _, error = user(*arguments)
    assert found == status
    assert problem in error
    assert "Traceback" not in error
    assert (conf / "users.yml").read_bytes() == before


def test_empty_password(user):
    """An empty password is refused."""
    status, _, error = user(
        "add", "a", "--observe", "*", "--password-stdin", password=""
    )
    assert (status, "the password is empty" in error) == (2, True)


def test_without_the_key(conf, user, tmp_path):
    """Without the key, a file must be named; it may be anywhere."""
    (conf / "canal.properties").write_text("")
    status, _, error = user("list")
    assert status == 2
    assert "canal.users.file is not set in canal.properties" in error
    other = str(tmp_path / "other.yml")
    options = ("--file", other, "--password-stdin")
    assert user("add", "a", "--observe", "*", *options)[0] == 0
    assert user("list", "--file", other)[1].startswith("a\n")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to others")
def test_root_writes_for_the_account_of_the_folder(conf, user, tmp_path):
    """What root writes belongs to the folder's account, but never what is linked."""
    others = tmp_path / "of_root"
    others.write_text("")
    os.chown(conf, 4711, 4712)
    path = conf / "users.yml"
    lock = conf / "users.yml.lock"
    lock.hardlink_to(others)
    assert user("add", "a", "--observe", "*", "--password-stdin")[0] == 0
    assert (path.stat().st_uid, path.stat().st_gid) == (4711, 4712)
    assert others.stat().st_uid == 0

    for link in (lock, path.with_name("users.yml.tmp")):
        link.unlink(missing_ok=True)
        link.symlink_to(others)
        user("passwd", "a", "--password-stdin", password="other")
        assert others.read_text() == ""
        assert others.stat().st_uid == 0
        link.unlink(missing_ok=True)
    assert user("passwd", "a", "--password-stdin", password="other")[0] == 0
    assert (lock.stat().st_uid, path.stat().st_uid) == (4711, 4711)

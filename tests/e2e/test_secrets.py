"""No password of the settings appears in anything that a server shows."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from fake_mysql import account
from fix_daemon import child_environ
from fix_pipeline import DESTINATION, STARTED, Process, write_properties

from canal_server import cli
from canal_server.client import CanalClient
from canal_server.config.load import load
from canal_server.daemon.control import ask
from canal_server.protocol.auth import stored_form

if TYPE_CHECKING:
    from collections.abc import Iterator

    from servers import Server

DB, TSDB = "s3cret-of-the-source", "s3cret-of-the-history"
TOKEN, STORE, ARGUMENT = "s3cret-token", "s3cret-of-a-store", "s3cret-argument"
CLIENT, OPERATOR = "s3cret-of-clients", "s3cret-of-operators"
HASHES = [stored_form(each) for each in (CLIENT, OPERATOR)]
SECRETS = [DB, TSDB, TOKEN, STORE, ARGUMENT, CLIENT, OPERATOR, *HASHES]
PAGES = (
    "/",
    "/healthz",
    "/readyz",
    "/api/v1/openapi.json",
    "/api/v1/status",
    "/api/v1/log-levels",
    "/api/v1/destinations",
    *(
        f"/api/v1/destinations/{DESTINATION}{path}"
        for path in ("", "/throughput", "/positions", "/subscriptions", "/tables")
    ),
)


class Outputs:
    """All that was shown, by where; fails when a secret is in it."""

    def __init__(self) -> None:
        self.found: dict[str, str] = {}

    def add(self, where: str, text: str) -> str:
        """Keep a text, and return it."""
        self.found[where] = self.found.get(where, "") + text
        return text

    def check(self, *more: str) -> None:
        """Look for each secret in everything."""
        for where, text in self.found.items():
            for secret in (*SECRETS, *more):
                assert secret not in text, f"{where} has {secret}: {text}"


class Scene:
    """A conf folder full of secrets, and a server with it in a process of its own."""

    def __init__(self, pipeline, folder: Path, user: str) -> None:
        self.conf: Path = pipeline.conf
        self.source: Server = pipeline.source
        self.outputs = Outputs()
        self.folder = folder
        self.environ: dict[str, str] = {}
        source = pipeline.source
        self.settings: dict[str, object] = {
            "canal.instance.master.address": f"{source.host}:{source.port}",
            "canal.instance.dbUsername": user,
            "canal.instance.tsdb.url": (
                f"jdbc:mysql://{source.host}:{source.port}/{pipeline.schema}"
            ),
            "canal.instance.tsdb.dbUsername": f"{user}_history",
            "canal.instance.tsdb.dbPassword.file": self.secret("tsdb", TSDB),
            "canal.instance.master.sslMode": "REQUIRED",
            "canal.instance.filter.regex": rf"{pipeline.schema}\..*",
        }
        self.main: dict[str, object] = {
            "canal.ip": "127.0.0.1",
            "canal.port": 0,
            "canal.metrics.pull.port": 0,
            "canal.http.port": 0,
            "canal.admin.port": 0,
            "canal.destinations": DESTINATION,
            "canal.user": "canal",
            "canal.passwd": HASHES[0],
            "canal.http.user": "ops",
            "canal.http.passwd.file": self.secret("http", HASHES[1]),
            "canal.admin.user": "admin",
            "canal.admin.passwd.command": self.printing(HASHES[1]),
            "canal.alarm.after.seconds": 0,
            # Nobody listens there, so the failure is logged.
            "canal.alarm.webhook.url": f"http://127.0.0.1:1/{TOKEN}?key={TOKEN}",
        }

    def secret(self, name: str, text: str) -> Path:
        """Write a file with a password."""
        path = self.folder / name
        path.write_text(f"{text}\n")
        path.chmod(0o600)
        return path

    def printing(self, text: str) -> str:
        """Return a command that prints a text, and has a secret in its arguments."""
        program = self.folder / "print-secret"
        program.write_text('#!/bin/sh\necho "$0 $*" >&2\ncat "$1"\n')
        program.chmod(0o700)
        path = self.secret(f"printed-{len(list(self.folder.iterdir()))}", text)
        return f"{program} {path} {ARGUMENT}"

    def write(self) -> None:
        """Write the settings."""
        write_properties(self.conf / "canal.properties", self.main)
        write_properties(self.conf / DESTINATION / "instance.properties", self.settings)

    @contextlib.contextmanager
    def server(self) -> Iterator[Process]:
        """Run the server, with all that its log can say."""
        self.write()
        process = Process(
            subprocess.Popen(
                [sys.executable, "-m", "canal_server", "start", "--conf",
                 str(self.conf), "--log-level", "debug"],
                stderr=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                text=True,
                env=child_environ() | self.environ,
            )
        )  # fmt: skip
        try:
            process.wait_for_log(STARTED)
            yield process
        finally:
            process.send(signal.SIGTERM)
            process.wait()
            self.outputs.add("log", "".join(process.log))

    def look(self, process: Process) -> None:
        """Keep what the server shows now."""
        add = self.outputs.add
        status = ask(self.conf, "status")
        add("status", json.dumps(status))
        for path in PAGES:
            for login in ("ops:wrong", f"ops:{OPERATOR}"):
                add(path, get(f"http://127.0.0.1:{status['http_port']}{path}", login))
        metrics = get(f"http://127.0.0.1:{status['metrics_port']}/metrics")
        assert "canal_certificate_expiry_seconds" in add("metrics", metrics)
        for pid in family_of(process.pid):
            with contextlib.suppress(OSError):
                add("cmdline", Path(f"/proc/{pid}/cmdline").read_text())

    def command(self, capsys, *arguments: str) -> str:
        """Run a command in this process; returns all that it printed."""
        with contextlib.suppress(SystemExit):
            cli.main([*arguments, "--conf", str(self.conf)])
        printed = capsys.readouterr()
        return self.outputs.add(" ".join(arguments), printed.out + printed.err)


def get(url: str, login: str = "") -> str:
    """Return the answer to a request, its headers included."""
    request = urllib.request.Request(url)
    if login:
        encoded = base64.b64encode(login.encode()).decode()
        request.add_header("Authorization", f"Basic {encoded}")
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return f"{answer.headers}{answer.read().decode()}"
    except urllib.error.HTTPError as error:
        return f"{error.headers}{error.read().decode()}"


def family_of(pid: int) -> list[str]:
    """Return a process and its children."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [str(pid), *children]


def encrypted(password: str) -> tuple[str, str]:
    """Return druid's public key and the encrypted password."""
    pair = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    public = pair.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    text = password.encode()
    block = b"\0\1" + b"\xff" * (125 - len(text)) + b"\0" + text
    numbers = pair.private_numbers()
    sealed = pow(int.from_bytes(block), numbers.d, numbers.public_numbers.n)
    return (
        base64.b64encode(public).decode(),
        base64.b64encode(sealed.to_bytes(128)).decode(),
    )


def give(scene: Scene, form: str) -> None:
    """Give the password of the source in a form."""
    key = "canal.instance.dbPassword"
    if form == "value":
        scene.settings[key] = DB
    elif form == "file":
        scene.settings[f"{key}.file"] = scene.secret("db", DB)
    elif form == "command":
        scene.settings[f"{key}.command"] = scene.printing(DB)
    elif form == "environment":
        scene.environ["CANAL_INSTANCE_DBPASSWORD"] = DB
    else:
        public, sealed = encrypted(DB)
        scene.settings |= {
            key: sealed,
            "canal.instance.enableDruid": "true",
            "canal.instance.pwdPublicKey": public,
        }


@pytest.fixture
def scene(make_pipeline, mysql_server, database, tmp_path, monkeypatch):
    """Give a scene whose accounts exist."""
    for port in ("METRICS_PULL", "HTTP", "ADMIN"):
        monkeypatch.delenv(f"CANAL_{port}_PORT")
    mysql_server.execute(f"CREATE TABLE {database}.t (a INT PRIMARY KEY)")
    pipeline = make_pipeline(mysql_server, database, {})
    user = f"{database}_secret"[-20:]
    folder = tmp_path / "secrets"
    folder.mkdir(mode=0o700)
    with (
        account(mysql_server, user, f"IDENTIFIED BY '{DB}'"),
        account(mysql_server, f"{user}_history", f"IDENTIFIED BY '{TSDB}'"),
    ):
        mysql_server.execute(
            f"GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO {user}",
            f"GRANT ALL ON {database}.* TO {user}_history",
        )
        yield Scene(pipeline, folder, user)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["value", "file", "command", "environment", "druid"])
def test_while_it_runs(scene, form, capsys, monkeypatch):
    """Neither a server that works nor one whose source refuses it shows a secret."""
    give(scene, form)
    user = scene.settings["canal.instance.dbUsername"]
    with scene.server() as process:
        process.wait_for_log("reads ")
        port = ask(scene.conf, "status")["port"]
        with pytest.raises(Exception, match="auth failed"):
            CanalClient(
                "127.0.0.1", port, DESTINATION, 1, "canal", "no", reconnect_for_s=0
            ).connect()
        scene.look(process)
        # From now on the password is wrong.
        scene.source.execute(
            f"ALTER USER {user} IDENTIFIED BY 'another'",
            f"ALTER USER {user}_history IDENTIFIED BY 'another'",
        )
        for (number,) in scene.source.execute(
            f"SELECT id FROM information_schema.processlist WHERE user LIKE '{user}%'"
        ):
            with contextlib.suppress(Exception):  # it may have ended
                scene.source.execute(f"KILL {number}")
        process.wait_for_log("Access denied")
        process.wait_for_log("127.0.0.1:1")  # of the alarm
        scene.look(process)
        for name, value in scene.environ.items():
            monkeypatch.setenv(name, value)
        assert "Access denied" in scene.command(capsys, "check")
        scene.command(capsys, "check", "--json")
        scene.command(capsys, "status", "--json")
        scene.command(capsys, "position", "show")
    scene.outputs.add("settings", repr(load(scene.conf, dict(os.environ))))
    scene.outputs.check()


def druid_with_another_key(scene: Scene) -> dict[str, Any]:
    """Return settings whose public key belongs to another pair."""
    return {
        "canal.instance.enableDruid": "true",
        "canal.instance.pwdPublicKey": encrypted("x")[0],
        "canal.instance.dbPassword": encrypted(DB)[1],
    }


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (
            lambda scene: {
                "canal.instance.dbPassword": DB,
                "canal.instance.dbPassword.file": scene.secret("db", DB),
            },
            "canal.instance.dbPassword is set as well",
        ),
        (
            lambda scene: {"canal.instance.dbPassword.file": scene.folder},
            "not a regular file",
        ),
        (
            lambda scene: {
                "canal.instance.dbPassword.file": scene.secret("db", f"{DB}\n{DB}")
            },
            "more than one line",
        ),
        (
            lambda _: {
                "canal.instance.enableDruid": "true",
                "canal.instance.dbPassword": DB,
            },
            "set canal.instance.enableDruid to false",
        ),
        (druid_with_another_key, "belongs to canal.instance.pwdPublicKey"),
        (lambda _: {"canal.instance.dbPassword": f"{DB}${{{DB}}}"}, "contains ${"),
        (
            lambda _: {"canal.instance.dbPassword.command": f"x '{ARGUMENT}"},
            "not a path or a command line",
        ),
        (
            lambda _: {
                "canal.instance.dbPassword": DB,
                "canal.instance.tsdb.url": f"jdbc:mysql://h/d?password={TSDB}",
            },
            "contains an account",
        ),
    ],
)
def test_settings_that_cannot_be_used(scene, capsys, make, problem):
    """Errors at the start and in `check` name the setting, and show no secret."""
    scene.settings |= make(scene)
    scene.write()
    sealed = str(scene.settings.get("canal.instance.dbPassword", ARGUMENT))
    assert problem in scene.command(capsys, "start")
    assert problem in scene.command(capsys, "check")
    scene.outputs.check(sealed)


def test_failing_stores_and_commands(scene, capsys):
    """What fails for each connection is shown by `check` and in the log, without it."""
    store = scene.folder / "store.p12"
    store.write_bytes(b"nonsense")
    scene.settings |= {
        "canal.instance.dbPassword": DB,
        "canal.instance.master.trustCertificateKeyStoreUrl": store,
        "canal.instance.master.trustCertificateKeyStorePassword": STORE,
    }
    scene.write()
    assert "no key store in PKCS #12" in scene.command(capsys, "check")
    with scene.server() as process:
        process.wait_for_log("no key store in PKCS #12")
    failing = scene.printing(DB).replace("print-secret", "fail")
    (scene.folder / "fail").write_text('#!/bin/sh\ncat "$1" >&2\ncat "$1"\nexit 3\n')
    (scene.folder / "fail").chmod(0o700)
    scene.settings = {
        key: value
        for key, value in scene.settings.items()
        if "trust" not in key and key != "canal.instance.dbPassword"
    } | {"canal.instance.dbPassword.command": failing}
    scene.write()
    assert "failed with exit status 3" in scene.command(capsys, "check")
    with scene.server() as process:
        process.wait_for_log("failed with exit status 3")
    scene.outputs.check()

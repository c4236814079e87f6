"""Unmodified clients log in as users with rights, through stunnel."""

from __future__ import annotations

import shutil
import socket
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from fix_interop import GO, JAVA, PYTHON, of_kinds
from fix_pipeline import DESTINATION
from fix_store import eventually
from interop_form import ids_of, insert, make_table

from canal_server import cli

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PASSWORD = "geheim"


@contextmanager
def stunnel(folder: Path, port: int, ca_file: Path) -> Iterator[int]:
    """Run stunnel as docs/howto/tls.md has it; yields its port in clear text."""
    program = shutil.which("stunnel")
    if program is None:
        pytest.skip("no stunnel: apt-get install stunnel4")
    with socket.create_server(("127.0.0.1", 0)) as free:
        ours = free.getsockname()[1]
    settings = folder / "stunnel.conf"
    settings.write_text(
        f"foreground = yes\npid =\n[canal]\nclient = yes\naccept = 127.0.0.1:{ours}\n"
        f"connect = 127.0.0.1:{port}\nCAfile = {ca_file}\nverifyChain = yes\n"
        "checkIP = 127.0.0.1\n"
    )
    process = subprocess.Popen([program, str(settings)], stderr=subprocess.DEVNULL)

    def is_up() -> bool:
        assert process.poll() is None, "stunnel has ended"
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", ours)) == 0

    try:
        eventually(is_up)
        yield ours
    finally:
        process.kill()
        process.wait()


@of_kinds(PYTHON, GO, JAVA)
def test_a_user_with_rights(  # fixtures
    daemon, start_client, client_kind, authority, tmp_path
):
    """A client gets the tables of its user, with masked columns, and nothing else."""
    tls = authority.server()
    table = make_table(daemon)
    other = make_table(daemon, "other")
    with (daemon.conf / "canal.properties").open("a") as main:
        main.write(
            "canal.users.file = users.yml\ncanal.tls.required = true\n"
            f"canal.tls.certFile = {tls.cert_file}\n"
            f"canal.tls.keyFile = {tls.key_file}\n"
        )
    rights = {
        "reader": ["--read", DESTINATION, "--tables", table.replace(".", r"\.")],
        "elsewhere": ["--read", "others"],
    }
    secret = tmp_path / "secret"
    secret.write_text(PASSWORD)
    for name, options in rights.items():
        adding = ["user", "add", "--conf", str(daemon.conf), name, *options]
        with pytest.MonkeyPatch.context() as patch, secret.open() as given:
            patch.setattr("sys.stdin", given)
            assert cli.main([*adding, "--password-stdin"]) == 0
    daemon.start()
    daemon.wait_for_status(lambda status: status.get("state") == "running")
    log_in = "connect_proving" if client_kind is PYTHON else "connect"
    with stunnel(tmp_path, daemon.server_port, authority.ca_file) as port:
        client = start_client()
        assert client.try_(log_in, "127.0.0.1", port, "reader", "falsch", DESTINATION)

        client = start_client()
        client.do(log_in, "127.0.0.1", port, "elsewhere", PASSWORD, DESTINATION)
        assert client.try_("subscribe", "")

        client = start_client()
        client.do(log_in, "127.0.0.1", port, "reader", PASSWORD, DESTINATION)
        client.do("subscribe", ".*\\..*")
        insert(daemon, other, *range(100, 150))
        insert(daemon, table, *range(50))
        found = client.get_all(lambda entries: ids_of(entries) == list(range(50)))
        tables = {each["table"] for each in found if each["type"] == "ROWDATA"}
        assert tables == {table.partition(".")[2]}

"""Tests of canal_server.doors.pymysql_driver."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from servers import Server

START = """
import sys
import canal_server.cli
import canal_server.cli.start
import canal_server.delivery.queue_delivery
loaded = [each for each in sys.modules if each.partition(".")[0] == "cryptography"]
assert not loaded, loaded
"""

LOG_IN = f"""
{START}
import pymysql
host, port, user, password = sys.argv[1:]
with pymysql.connect(
    host=host, port=int(port), user=user, password=password, ssl_disabled=True
) as connection, connection.cursor() as cursor:
    cursor.execute("SELECT CURRENT_USER()")
    print(cursor.fetchone()[0])
assert "cryptography.hazmat.bindings._rust" in sys.modules
"""


def run(program: str, *arguments: str) -> str:
    """Run a program in a process of its own; returns what it printed."""
    command = [sys.executable, "-P", "-c", program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_server_without_tls() -> None:
    """What the server imports at its start leaves `cryptography` out."""
    run(START)


@pytest.mark.parametrize("plugin", ["caching_sha2_password", "sha256_password"])
def test_connections_of_others(mysql_server: Server, plugin: str) -> None:
    """PyMySQL itself still encrypts passwords, though it was imported without.

    A new account is not in the cache of the server, so that it asks for the password.
    """
    if mysql_server.version < (8, 0, 0):
        pytest.skip(f"the plugin {plugin} has no keys of its own before MySQL 8.0")
    # Longer than the nonce of the server, which is repeated then.
    user, password = f"{plugin[:4]}_driver", "a long password " * 4
    mysql_server.execute(
        f"DROP USER IF EXISTS {user}",
        f"CREATE USER {user} IDENTIFIED WITH {plugin} BY '{password}'",
    )
    try:
        found = run(LOG_IN, mysql_server.host, str(mysql_server.port), user, password)
    finally:
        mysql_server.execute(f"DROP USER {user}")
    assert found == f"{user}@%\n"

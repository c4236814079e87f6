"""The door to PyMySQL, which is imported without `cryptography`.

PyMySQL imports that library, 8 MB in memory, for one thing: a password that is
encrypted with a server's RSA key. Here the first password of this kind imports it.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any, Final

from canal_server.tls.rsa_passwords import encrypted_password

_CRYPTOGRAPHY: Final = "cryptography"


def _import_pymysql() -> None:
    """Import PyMySQL, without `cryptography` unless somebody has imported that."""
    if _CRYPTOGRAPHY in sys.modules or "pymysql" in sys.modules:
        return
    modules: dict[str, Any] = sys.modules
    modules[_CRYPTOGRAPHY] = None  # to PyMySQL it looks like a missing package
    try:
        auth: Any = importlib.import_module("pymysql._auth")
    finally:
        del modules[_CRYPTOGRAPHY]
    # For connections that somebody else opens in this process.
    auth.sha2_rsa_encrypt = encrypted_password


_import_pymysql()

import pymysql  # noqa: E402
from pymysql._auth import scramble_caching_sha2  # noqa: E402
from pymysql.connections import Connection  # noqa: E402
from pymysql.protocol import FieldDescriptorPacket, MysqlPacket  # noqa: E402

__all__ = [
    "Connection",
    "FieldDescriptorPacket",
    "MysqlPacket",
    "pymysql",
    "scramble_caching_sha2",
]

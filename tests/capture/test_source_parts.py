"""How the settings of a source become those of its connections."""

from __future__ import annotations

from pathlib import Path

import pytest

from canal_server.capture.source_parts import access_of, standby_access_of
from canal_server.config.schema import HostConfig, HostPort, SourceConfig, SslMode
from canal_server.mysql.source_settings import KeyRetrieval, ServerKey
from canal_server.tls.source_tls import TlsMode


@pytest.mark.parametrize("mode", list(SslMode))
def test_access(mode: SslMode) -> None:
    """Address, account, time-outs and TLS are handed to the connection."""
    master = HostConfig(
        address=HostPort("db", 3307), ssl_mode=mode, ssl_ca=Path("/ca.pem")
    )
    access = access_of(
        SourceConfig(master=master, user="u", password="p", so_timeout_s=7.0), "d"
    )
    assert (access.address.host, access.address.port) == ("db", 3307)
    assert (access.credentials.user, access.credentials.password) == ("u", "p")
    assert access.connect_timeout_s == access.io_timeout_s == 7.0
    assert access.tls.mode is TlsMode[mode.name]
    assert access.tls.ca == ("" if mode is SslMode.DISABLED else "/ca.pem")


@pytest.mark.parametrize(
    ("allowed", "retrieval"),
    [
        (None, KeyRetrieval.WARNED),  # as in the folders of the Java server
        (True, KeyRetrieval.ALLOWED),
        (False, KeyRetrieval.REFUSED),
    ],
)
def test_the_key_for_a_password(
    allowed: bool | None,
    retrieval: KeyRetrieval,
) -> None:
    """Whether a key may be asked for, and the one that is pinned, reach the link."""
    host = HostConfig(
        address=HostPort("db", 3307),
        server_public_key=Path("/key.pem"),
        allow_public_key_retrieval=allowed,
    )
    found = access_of(SourceConfig(master=host), "d").server_key
    assert found == ServerKey("/key.pem", retrieval)


def test_access_to_a_standby() -> None:
    """A standby has an address and TLS of its own, and the same account."""
    standby = HostConfig(address=HostPort("db2", 3308), ssl_mode=SslMode.REQUIRED)
    access = standby_access_of(SourceConfig(standby=standby, user="u"))
    assert access is not None
    assert (access.address.host, access.address.port) == ("db2", 3308)
    assert access.tls.mode is TlsMode.REQUIRED
    assert access.credentials.user == "u"
    assert standby_access_of(SourceConfig()) is None

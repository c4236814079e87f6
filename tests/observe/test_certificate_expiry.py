"""Which certificates are looked up, and their metrics."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from canal_server.config.schema import (
    HostConfig,
    HostPort,
    InstanceConfig,
    SourceConfig,
    SslMode,
    TlsConfig,
)
from canal_server.observe.certificate_expiry import (
    CLIENT,
    SERVER,
    SOURCE,
    CertificateExpiry,
    certificate_metrics,
)
from canal_server.observe.readings import Reading
from canal_server.passwords.password_source import PasswordSource
from canal_server.server.request_counts import RequestCounts

PASSWORD = "s3cret-of-a-store"


def host(**files: Any) -> HostConfig:
    """Return a host with TLS."""
    return HostConfig(address=HostPort("db", 3306), ssl_mode=SslMode.REQUIRED, **files)


def instance(**source: Any) -> InstanceConfig:
    """Return a destination with a source."""
    return InstanceConfig(destination="shop", source=SourceConfig(**source))


def readings(**status: Any) -> list[Reading]:
    """Return what a destination shows."""
    return [Reading("shop", {"reads": "db:3306", **status}, RequestCounts(), None)]


def expiry(config=None, shown=(), tls=None) -> CertificateExpiry:
    """Return what looks the certificates up."""
    configs = [] if config is None else [config]
    return CertificateExpiry(tls or TlsConfig(), lambda: configs, lambda: shown)


def days_of(found) -> dict[tuple[str, str], int]:
    """Return the days that are left, by role and name."""
    now_s = datetime.now(UTC).timestamp()
    return {
        (each.role, each.name): round((each.expires_at_s - now_s) / 86_400)
        for each in found
    }


def test_none():
    """Without TLS there is nothing to look up."""
    assert expiry(instance(master=HostConfig(address=HostPort("db", 1)))).all() == []


def test_all_kinds(authority, tmp_path):
    """That of the ports, those for sources in files and stores, and the sources'."""
    cert, key = authority.issue("client", days=20)
    store = authority.store("store", PASSWORD, *authority.issue("other", days=40))
    config = instance(
        master=host(ssl_cert=cert, ssl_key=key),
        standby=host(client_store=store, client_store_password=PASSWORD),
    )
    ends = datetime.now(UTC) + timedelta(days=5)
    shown = readings(certificate_expires_ms=round(ends.timestamp() * 1000))
    server = authority.server("server")
    found = expiry(config, shown, server).all()
    assert days_of(found) == {
        (SERVER, str(server.cert_file)): 365,
        (CLIENT, str(cert)): 20,
        (CLIENT, str(store)): 40,
        (SOURCE, "db:3306"): 5,
    }
    assert [each.about for each in found[1:]] == [
        f"{cert} that destination shop shows to its source",
        f"{store} that destination shop shows to its source",
        "of db:3306, the source of destination shop,",
    ]
    metrics = list(certificate_metrics(found, ends.timestamp()))
    assert [each.name for each in metrics] == ["canal_certificate_expiry_seconds"]
    last = metrics[0].samples[-1]
    assert abs(last.value) < 0.01
    assert last.labels == {
        "role": SOURCE,
        "destination": "shop",
        "certificate": "db:3306",
    }


def test_sources_of_a_group():
    """Each source of a group has its own."""
    sources = [
        {"reads": "a:1", "certificate_expires_ms": 1000},
        {"reads": "b:1", "certificate_expires_ms": None},
        {"reads": "c:1", "certificate_expires_ms": 3000},
    ]
    found = expiry(shown=readings(sources=sources)).all()
    assert [(each.name, each.expires_at_s) for each in found] == [
        ("a:1", 1),
        ("c:1", 3),
    ]


def test_what_cannot_be_read_is_left_out(authority, tmp_path):
    """Broken and missing files are reported by what uses them."""
    broken = tmp_path / "broken.pem"
    broken.write_text("nonsense")
    store = authority.store("store", PASSWORD, *authority.issue("other"))
    config = instance(
        master=host(ssl_cert=tmp_path / "missing.pem"),
        standby=host(client_store=store, client_store_password="wrong"),
    )
    assert expiry(config, (), TlsConfig(cert_file=broken)).all() == []


def test_a_store_is_opened_again_when_it_changes(authority, tmp_path):
    """The command of its password is not run at each look."""
    log = tmp_path / "log"
    source = PasswordSource("k", command=f"sh -c 'echo x >> {log}; echo {PASSWORD}'")
    store = authority.store("store", PASSWORD, *authority.issue("a", days=20))
    config = instance(master=host(client_store=store, client_store_password=source))
    found = expiry(config)
    for _ in range(3):
        assert days_of(found.all()) == {(CLIENT, str(store)): 20}
    assert log.read_text() == "x\n"
    authority.store("store", PASSWORD, *authority.issue("a", days=300))
    assert days_of(found.all()) == {(CLIENT, str(store)): 300}
    assert log.read_text() == "x\nx\n"

"""When certificates are warned about."""

from __future__ import annotations

import logging

import pytest
from fix_store import eventually

from canal_server.observe.certificate_expiry import SERVER, Certificate
from canal_server.observe.certificate_watch import (
    DAY_S,
    CertificateWatch,
    ExpiryWarnings,
)

NOW_S = 1_700_000_000.0


def certificate(days: float, name: str = "a.pem") -> Certificate:
    """Return a certificate that is valid for so long."""
    about = f"in canal.tls.certFile = {name}"
    return Certificate(SERVER, "", name, about, NOW_S + days * DAY_S)


class Scene:
    """Warnings and a clock; only what is logged at a look is returned."""

    def __init__(self, caplog, warning_days=30) -> None:
        self._caplog = caplog
        self._days = 0.0
        self._warnings = ExpiryWarnings(
            warning_days, lambda: NOW_S + self._days * DAY_S
        )

    def look(self, *certificates: Certificate, days: float = 0.0) -> list[str]:
        """Look at so many days after the start."""
        self._days = days
        self._caplog.clear()
        self._warnings.look(certificates)
        return [
            record.getMessage()
            for record in self._caplog.records
            if record.levelno == logging.WARNING
        ]


@pytest.mark.parametrize(
    ("days", "text"),
    [(31, None), (29, "expires at 2023-12-13"), (-1, "expired at 2023-11-13")],
)
def test_the_text(caplog, days, text):
    """A certificate that is valid for long is not mentioned."""
    found = Scene(caplog).look(certificate(days))
    expected = [f"the certificate in canal.tls.certFile = a.pem {text} 22:13 UTC"]
    assert found == (expected if text else [])


def test_once_a_day(caplog):
    """A certificate is warned about each day, and its replacement is another one."""
    scene = Scene(caplog)
    soon = certificate(20)
    assert len(scene.look(soon)) == 1
    assert scene.look(soon, days=0.9) == []
    assert len(scene.look(soon, days=1.1)) == 1
    assert scene.look(soon, days=1.9) == []
    assert len(scene.look(certificate(25), days=1.9)) == 1
    assert scene.look(certificate(400), days=2.0) == []


def test_several(caplog):
    """Each certificate counts by itself."""
    scene = Scene(caplog)
    assert len(scene.look(certificate(1, "a"), certificate(1, "b"))) == 2
    assert len(scene.look(certificate(1, "a"), certificate(1, "c"), days=0.1)) == 1


def test_only_expired_ones(caplog):
    """With 0 days only what has expired is warned about."""
    scene = Scene(caplog, warning_days=0)
    assert scene.look(certificate(0.5)) == []
    assert len(scene.look(certificate(0.5), days=1)) == 1


def test_the_stage(caplog):
    """It looks at once, and what fails ends neither it nor the process."""
    calls = []

    def look_up():
        calls.append(1)
        raise RuntimeError("a fault of ours")

    broken = CertificateWatch(look_up, 30)
    broken.start()
    eventually(lambda: "cannot look for certificates" in caplog.text)
    broken.request_stop()
    assert broken.found() == ()

    watch = CertificateWatch(lambda: [certificate(-1)], 30)
    watch.start()
    eventually(lambda: "a.pem expired at" in caplog.text)
    assert watch.found() == [certificate(-1)]
    watch.request_stop()

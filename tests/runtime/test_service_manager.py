"""States for systemd, over its socket."""

from __future__ import annotations

import socket

import pytest

from canal_server.runtime.service_manager import READY, STOPPING, notify


@pytest.fixture(params=["file", "abstract"])
def manager(request, tmp_path, monkeypatch):
    """Give the socket of a service manager, with a file or without one."""
    address = str(tmp_path / "notify")
    if request.param == "abstract":
        address = f"\0canal-test-{tmp_path.name}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(address)
        listener.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", address.replace("\0", "@"))
        yield listener


def test_states(manager):
    """A state is sent with a line for people, or alone."""
    notify(READY, "serving clients")
    notify(STOPPING)
    assert manager.recv(1000) == b"READY=1\nSTATUS=serving clients"
    assert manager.recv(1000) == b"STOPPING=1"


@pytest.mark.parametrize("address", ["", "/nowhere/at/all", "vsock:2:1"])
def test_no_manager(monkeypatch, address):
    """Without a socket that answers, nothing happens."""
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    notify(READY)

"""The options of a client as a value."""

from __future__ import annotations

from canal_server.client import CanalClient


def test_password_is_not_shown():
    """What shows the options, such as a traceback with locals, has no password."""
    assert "a secret" not in repr(CanalClient(password="a secret")._options)

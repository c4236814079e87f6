"""Passwords in definitions of tables."""

from __future__ import annotations

import pytest

from canal_server.tablemeta.history.ddl_secrets import without_secrets


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("CONNECTION='mysql://u:pw@h:1/d/t'", "CONNECTION='mysql://u:***@h:1/d/t'"),
        ("CONNECTION='mysql://u:p@w:x@h/d'", "CONNECTION='mysql://u:***@h/d'"),
        ("CONNECTION='mysql://u@h/d'", "CONNECTION='mysql://u@h/d'"),
        ("PASSWORD = 'pw', HOST 'h'", "PASSWORD = '***', HOST 'h'"),
        ("PASSWORD='it''s'", "PASSWORD='***'"),
        ("PASSWORD 'a\\'b' X", "PASSWORD '***' X"),
        ('COMMENT=\'user "u", password "pw"\'', 'COMMENT=\'user "u", password "***"\''),
        ("(`password` varchar(9) DEFAULT 'x')", "(`password` varchar(9) DEFAULT 'x')"),
        ("(passwd text COMMENT 'a note')", "(passwd text COMMENT 'a note')"),
        ("COMMENT 'see https://host/path'", "COMMENT 'see https://host/path'"),
    ],
)
def test_without_secrets(text, shown):
    """Passwords are left out, and columns that are named so are not."""
    assert without_secrets(text) == shown

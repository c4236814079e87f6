"""The context of a statement, and its short text."""

from __future__ import annotations

import pytest

from canal_server.tablemeta.model.session_context import (
    ANSI_QUOTES,
    NO_BACKSLASH_ESCAPES,
    ORACLE,
    Context,
)


@pytest.mark.parametrize(
    ("context", "text"),
    [
        (Context(), "{}"),
        (Context(schema="d", error=5), '{"schema":"d","error":5}'),
        (Context(explicit_timestamp=False), '{"explicit_timestamp":false}'),
        (
            Context(mariadb=True, server_version=101119, charset_client="größe"),
            '{"mariadb":true,"server_version":101119,"charset_client":"größe"}',
        ),
    ],
)
def test_text(context: Context, text: str) -> None:
    """The text holds what differs from the defaults, and gives it again."""
    assert context.to_json() == text
    assert Context.from_json(text) == context


def test_text_of_others() -> None:
    """An empty text is an empty context; unknown keys are ignored."""
    assert Context.from_json("") == Context()
    assert Context.from_json('{"schema":"d","later":1}') == Context(schema="d")


def test_modes() -> None:
    """The mode determines how the text is parsed."""
    context = Context(
        sql_mode=ANSI_QUOTES | ORACLE, mariadb=True, server_version=100300
    )
    assert context.dialect.ansi_quotes
    assert not context.dialect.no_backslash_escapes
    assert context.dialect.mariadb
    assert context.dialect.server_version == 100300
    assert context.oracle
    assert not Context(sql_mode=ORACLE).oracle
    assert not Context(sql_mode=ORACLE, mariadb=True, server_version=100211).oracle
    assert Context(sql_mode=NO_BACKSLASH_ESCAPES).dialect.no_backslash_escapes

"""`--filter`: what is refused, and with which remedy."""

from __future__ import annotations

import argparse

import pytest

from canal_server.cli import main
from canal_server.cli.filter_option import filter_of
from canal_server.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("*", "'*' matches no table"),
        (r"shop\..*,orders", "'orders' matches no table"),
        (r".*\\..*", r"'.*\\..*' requires a backslash in a name; \. is enough"),
        (r"a\.b, a\.c", r"' a\.c' starts or ends with a blank and matches no table"),
        (r"!a\.b", r"'!a\.b' is not a negation"),
    ],
)
@pytest.mark.parametrize("command", [("tail", "--port", "1"), ("decode", "none.1")])
def test_in_vain(command, text, why, capsys):
    """A filter that can match nothing is an error, with what may be written."""
    assert main([*command, "--filter", text]) == 2
    output = capsys.readouterr().err
    assert f"canal-server {command[0]}: --filter '{text}': {why}" in output
    assert r"such as '.*\..*' for all tables" in output


@pytest.mark.parametrize("text", ["", r".*\..*", "*.*", r"shop\..*,crm\.person"])
def test_what_is_accepted(text):
    """What canal's users write is a filter, also `*.*`; none accepts all."""
    args = argparse.Namespace(command="tail", filter=text)
    assert filter_of(args).accepts((("shop", "orders"),))


def test_no_expression():
    """An invalid regular expression is reported with its problem."""
    with pytest.raises(ConfigError, match=r"--filter '\(': .* unmatched \("):
        filter_of(argparse.Namespace(command="decode", filter="("))

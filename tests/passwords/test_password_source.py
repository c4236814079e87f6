"""Where passwords come from, read when they are needed."""

from __future__ import annotations

import pickle
import traceback
from typing import TYPE_CHECKING

import pytest
from druid_samples import JAVA_KEY, JAVA_TEXT

from canal_server.errors import PasswordError
from canal_server.passwords.password_source import PasswordSource, revealed

if TYPE_CHECKING:
    from pathlib import Path

KEY = "canal.instance.dbPassword"


def of_file(path: Path, content: bytes) -> PasswordSource:
    """Return the source of a file with this content."""
    path.write_bytes(content)
    return PasswordSource(f"{KEY}.file", file=path)


@pytest.mark.parametrize(
    ("content", "password"),
    [
        (b"geheim", "geheim"),
        (b"geheim\n", "geheim"),
        (b"geheim\r\n", "geheim"),
        (b" ge heim \n", " ge heim "),
        ("gehäim\n".encode(), "gehäim"),
    ],
)
def test_the_text_of_a_file(tmp_path, content, password):
    """One newline at its end is dropped, and nothing else."""
    assert of_file(tmp_path / "p", content).read() == password


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "empty"),
        (b"\n", "empty"),
        (b"gehe\nim\n", "more than one line"),
        (b"geheim\n\n", "more than one line"),
        (b"gehe\0im", "NUL"),
        (b"gehe\xffim", "not valid UTF-8"),
    ],
    ids=range(6),
)
def test_what_is_no_password(tmp_path, content, problem):
    """The error names key, file and remedy, and has nothing of the content."""
    path = tmp_path / "p"
    with pytest.raises(PasswordError, match=problem) as caught:
        of_file(path, content).read()
    assert str(caught.value).startswith(f"{KEY}.file = {path}: ")
    shown = "".join(traceback.format_exception(caught.value)) + repr(caught.value)
    assert "gehe" not in shown
    assert caught.value.__cause__ is None


def test_a_file_is_read_each_time(tmp_path):
    """A password that was replaced is the one that is used."""
    source = of_file(tmp_path / "p", b"old\n")
    assert revealed(source) == "old"
    (tmp_path / "p").write_text("new\n")
    assert revealed(source) == "new"


def test_a_command_and_a_text():
    """The output of a command is read like a file; a text is itself."""
    assert revealed(PasswordSource(f"{KEY}.command", command="echo geheim")) == (
        "geheim"
    )
    assert revealed("geheim\n") == "geheim\n"


def test_an_encrypted_one(tmp_path):
    """A text, a file and a command may have an encrypted password."""
    for source in (
        PasswordSource(KEY, text=JAVA_TEXT, public_key=JAVA_KEY),
        PasswordSource(KEY, command=f"echo {JAVA_TEXT}", public_key=JAVA_KEY),
        PasswordSource(
            KEY, of_file(tmp_path / "p", JAVA_TEXT.encode()).file, public_key=JAVA_KEY
        ),
    ):
        assert source.read() == "canal"
    with pytest.raises(PasswordError, match=r"dbPassword = \(hidden\): not encrypted"):
        PasswordSource(KEY, text="geheim", public_key=JAVA_KEY).read()


def test_no_text_form_has_it():
    """What is printed of a source has neither its text nor a command's arguments."""
    source = PasswordSource(KEY, command="echo geheim", text="geheim")
    assert "geheim" not in f"{source!r} {source}"


def test_equal_sources_are_equal():
    """Settings that did not change are seen as such, also of another process."""
    source = PasswordSource(KEY, command="echo geheim")
    assert pickle.loads(pickle.dumps(source)) == source
    assert source != PasswordSource(KEY, command="echo other")

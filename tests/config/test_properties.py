"""Reading .properties files."""

from __future__ import annotations

import pytest

from canal_server.config.properties import UnreadableError, read_properties


def read(tmp_path, content: bytes):
    """Write and read a file."""
    path = tmp_path / "a.properties"
    path.write_bytes(content)
    return read_properties(path)


@pytest.mark.parametrize(
    ("line", "key", "value"),
    [
        (rb"a=b", "a", "b"),
        (rb"a:b", "a", "b"),
        (rb"a b", "a", "b"),
        (rb"  a  =  b  ", "a", "b  "),
        (rb"a", "a", ""),
        (rb"a = b = c", "a", "b = c"),
        (rb"a\:b = c", "a:b", "c"),
        (rb"r = .*\\..*", "r", r".*\..*"),
        (rb"r = .*\..*", "r", ".*..*"),
        (rb"t = a\tb\nc", "t", "a\tb\nc"),
        (rb"u = \u4e2d", "u", "中"),
        (rb"q = \q", "q", "q"),
        (b"c = a,\\\n    b", "c", "a,b"),
        (b"c = a\r\n", "c", "a"),
        (b"l = \xe9", "l", "é"),
    ],
)
def test_syntax(tmp_path, line, key, value):
    """Separators, escapes, continuation lines and bytes are read as Java reads them."""
    assert read(tmp_path, line).values == {key: value}


def test_comments_and_duplicates(tmp_path):
    """Comments yield nothing, and of a doubled key the last value counts."""
    content = b"# a=1\n! b=2\n\nc=3\nc=4\n"
    assert read(tmp_path, content).values == {"c": "4"}


def test_bytes_beyond_ascii_are_named(tmp_path):
    """Keys whose values contain raw non-ASCII bytes are reported; comments are not."""
    content = "# größe\na = größe\nb = \\u00e9\n".encode()
    assert read(tmp_path, content).non_ascii == ("a",)


def test_a_broken_escape_is_an_error_with_a_remedy(tmp_path):
    r"""A \u without four digits, as in a Windows path, says what to write."""
    with pytest.raises(UnreadableError, match=r"line 3: .*double the backslash"):
        read(tmp_path, b"# note\nb = 1\na = c:\\ups")


def test_a_missing_file_is_its_own_error(tmp_path):
    """A missing file differs from an unreadable one."""
    with pytest.raises(FileNotFoundError):
        read_properties(tmp_path / "none")


def test_a_folder_is_unreadable(tmp_path):
    """A folder instead of a file is a readable error."""
    with pytest.raises(UnreadableError, match="directory"):
        read_properties(tmp_path)


@pytest.mark.parametrize(
    ("content", "values"),
    [
        (b"\xef\xbb\xbfa=b\nc=d", {"a": "b", "c": "d"}),
        (b"a=b\n\xef\xbb\xbfc=d\n", {"a": "b", "c": "d"}),  # of two files
        (b"\xef\xbb\xbf# note\r\na=b\r\n", {"a": "b"}),
        (b"\xef\xbb\xbf", {}),
    ],
)
def test_a_byte_order_mark_is_skipped(tmp_path, content, values):
    """A mark that an editor wrote before the text belongs to no key."""
    found = read(tmp_path, content)
    assert found.values == values
    assert found.non_ascii == ()


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_other_encodings_are_named(tmp_path, encoding):
    """A file of two bytes a character is refused in words."""
    with pytest.raises(UnreadableError) as caught:
        read(tmp_path, "a = b".encode(encoding))
    assert str(caught.value) == (
        "UTF-16 or not a text file; save it as ISO-8859-1, with other characters as "
        "\\uXXXX"
    )


def test_a_file_instead_of_the_folder(tmp_path):
    """The path of canal.properties itself is refused with a hint to its folder."""
    conf = tmp_path / "canal.properties"
    conf.touch()
    with pytest.raises(UnreadableError) as caught:
        read_properties(conf / "canal.properties")
    assert str(caught.value) == (
        f"{conf} is a file; set the folder that contains canal.properties"
    )

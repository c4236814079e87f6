"""Text of character sets against Python, Java's rules for UTF-8, and real servers."""

from __future__ import annotations

import re

import pytest

from canal_server.decoder.text.charset_tables import MULTI_BYTE, SINGLE_BYTE
from canal_server.decoder.text.charset_text import Charset, charset, decode_text
from canal_server.errors import TableMetaError

# What Java's decoder consumes at a time: a character, or what becomes one U+FFFD.
JAVA_PART = re.compile(
    rb"([\x00-\x7f]|[\xc2-\xdf][\x80-\xbf]"
    rb"|\xe0[\xa0-\xbf][\x80-\xbf]|[\xe1-\xec\xee\xef][\x80-\xbf]{2}"
    rb"|\xed[\x80-\x9f][\x80-\xbf]"
    rb"|\xf0[\x90-\xbf][\x80-\xbf]{2}|[\xf1-\xf3][\x80-\xbf]{3}"
    rb"|\xf4[\x80-\x8f][\x80-\xbf]{2})"
    rb"|\xe0[\xa0-\xbf]|\xed[\xa0-\xbf][\x80-\xbf]?|[\xe1-\xef][\x80-\xbf]"
    rb"|\xf0[\x90-\xbf][\x80-\xbf]?|[\xf1-\xf3][\x80-\xbf]{1,2}"
    rb"|\xf4[\x80-\x8f][\x80-\xbf]?|.",
    re.DOTALL,
)


def java_utf8(data: bytes) -> str:
    """Decode UTF-8 as Java does."""
    return "".join(
        part[1].decode() if part[1] is not None else "\ufffd"
        for part in JAVA_PART.finditer(data)
    )


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", ""),
        ("résumé €, 中文, 😀".encode(), "résumé €, 中文, 😀"),
        (b"\xc0\x80", "\ufffd\ufffd"),
        (b"\xe0\x80\x80", "\ufffd\ufffd\ufffd"),
        (b"\xed\xa0\x80", "\ufffd"),
        (b"\xed\xa0A", "\ufffdA"),
        (b"a\xe4\xb8", "a\ufffd"),
        (b"\xf0\x9f\x98", "\ufffd"),
        (b"\xf4\x90\x80\x80", "\ufffd" * 4),
        (b"\xff\xfeA", "\ufffd\ufffdA"),
    ],
)
def test_utf8_by_name(data, text):
    """Overlong, surrogate, cut and foreign sequences have Java's replacements."""
    assert decode_text(data, "utf8mb4") == text
    assert java_utf8(data) == text


def test_random_utf8(rng):
    """Any mix of valid and broken sequences reads as Java reads it."""
    pieces = [b"abcdefgh", b"a", "é".encode(), "中".encode(), "😀".encode()]
    pieces += [bytes([byte]) for byte in range(0x7F, 0x100)]
    for _ in range(20000):
        data = b"".join(rng.choices(pieces, k=rng.randint(1, 12)))
        assert decode_text(data, "utf8mb4") == java_utf8(data), data.hex()


@pytest.mark.parametrize("name", ["utf16", "utf16le", "utf32"])
def test_unicode_encodings(name, rng):
    """All planes come through; a cut character becomes U+FFFD."""
    codec = {"utf16": "utf-16-be", "utf16le": "utf-16-le", "utf32": "utf-32-be"}[name]
    for _ in range(2000):
        points = (rng.choice((rng.randrange(0xD800), rng.randrange(0xE000, 0x110000)))
                  for _ in range(rng.randint(0, 20)))  # fmt: skip
        text = "".join(map(chr, points))
        assert decode_text(text.encode(codec), name) == text
        assert decode_text(text.encode(codec) + b"\x00", name) == text + "\ufffd"


@pytest.mark.parametrize(
    ("data", "name", "text"),
    [
        (b"\xd8\x3d\x00a", "utf16", "\ufffda"),
        (b"\xde\x00\xd8\x3d", "utf16", "\ufffd\ufffd"),
        (b"\xd8\x3d\xde\x00", "utf16", "😀"),
        (b"\xd8\x3d\xde\x00", "ucs2", "\ufffd\ufffd"),
        (b"\x00\x11\x00\x00", "utf32", "\ufffd"),
        (b"\xff\xff\xff\xff", "utf32", "\ufffd"),
        (b"\x00\x7f\x80\xff", "binary", "\x00\x7f\x80\xff"),
        (b"\x80", "ascii", "\ufffd"),
        ("résumé €".encode("cp1252"), "latin1", "résumé €"),
        (b"[\\]", "swe7", "ÄÖÅ"),
        ("中文测试".encode("gbk"), "gbk", "中文测试"),
        (b"\xd6!", "gbk", "\ufffd!"),
        (b"\xd6", "gbk", "\ufffd"),
        (b"\xff\xff", "gbk", "\ufffd\ufffd"),
        ("日本".encode("shift_jis"), "sjis", "日本"),
        (b"\xb1\xb2", "sjis", "ｱｲ"),
        (b"\x8e\xb1", "ujis", "ｱ"),
        (b"\x8f\xb0\xa1", "ujis", "丂"),
        (b"\x8f\xb0", "ujis", "\ufffd"),
        (b"\x8f\xb0a", "ujis", "\ufffda"),
        (b"\xad\xa1\x8f\xf4\xae", "eucjpms", "①炻"),
        (b"\x90\x30\x81\x30", "gb18030", "\U00010000"),
        (b"\x90\x30\x81", "gb18030", "\ufffd0\ufffd"),
        (b"\xfe\x39\xfe\x39", "gb18030", "\ufffd"),
        (b"\x84\x31\xa4\x39", "gb18030", "\uffff"),
    ],
)
def test_other_sets_by_name(data, name, text):
    """Truncated or undefined bytes become U+FFFD and consume no ASCII."""
    assert decode_text(data, name) == text


@pytest.mark.parametrize("name", [*SINGLE_BYTE, *MULTI_BYTE, "binary", "utf16", "ucs2"])
def test_any_bytes_in_any_set(name, rng):
    """Random bytes give text and nothing else, whatever the set and the length."""
    for _ in range(300):
        data = rng.randbytes(rng.randint(0, 70))
        text = decode_text(data, name)
        assert len(text) <= len(data)
        assert text.encode().decode() == text


def test_long_text_grows_the_output():
    """A megabyte of characters that triple in size comes through whole."""
    text = "ไทย" * 100_000
    assert decode_text(text.encode("tis-620"), "tis620") == text


def test_knows_what_is_binary():
    """Only the set `binary` is not text, and `utf8` means utf8mb3."""
    assert charset("binary").is_binary
    assert not charset("utf8mb4").is_binary
    assert charset("UTF8").name == "utf8mb3"


def test_refuses_unknown_names():
    """A set that MySQL does not have is an error that names it."""
    with pytest.raises(TableMetaError, match="klingon"):
        Charset("klingon")


def codes_of(name: str, prefix: bytes) -> list[bytes]:
    """Return every code of a set: single bytes, or what may follow a lead byte."""
    singles = [bytes([byte]) for byte in range(256)]
    if name in SINGLE_BYTE:
        return singles
    # A lead byte alone is U+FFFD.
    leads = [code for code in singles if decode_text(code, name) == "\ufffd"]
    firsts = singles if prefix else leads
    pairs = [prefix + lead + code for lead in firsts for code in singles]
    return pairs if prefix else singles + pairs


def compare(server, name: str, codes: list[bytes]) -> int:
    """Check each code that the server can convert; returns how many those are."""
    compared = 0
    for at in range(0, len(codes), 4096):
        part = codes[at : at + 4096]
        rows = server.execute(
            f"SELECT c, CAST(CONVERT(CONVERT(UNHEX(c) USING {name}) USING utf8mb4)"
            " AS BINARY) FROM JSON_TABLE('["
            + ",".join(f'"{code.hex()}"' for code in part)
            + "]', '$[*]' COLUMNS (c VARCHAR(8) PATH '$')) AS codes"
        )
        for code, converted in rows:
            known = None if converted is None else converted.decode("utf-8", "replace")
            # Several characters, "?" or U+FFFD: the server knows no such code.
            if known and len(known) == 1 and (known not in "?\ufffd" or code == "3f"):
                assert decode_text(bytes.fromhex(code), name) == known, code
                compared += 1
    return compared


@pytest.mark.parametrize("name", [*SINGLE_BYTE, *MULTI_BYTE])
def test_agrees_with_a_server(name, source_server):
    """Every code that a real server can convert gives the same character here."""
    known = source_server.execute("SELECT character_set_name FROM"
                                  " information_schema.character_sets")  # fmt: skip
    if (name,) not in known:
        pytest.skip(f"the server has no {name}")
    compared = compare(source_server, name, codes_of(name, b""))
    if name in ("ujis", "eucjpms"):
        compared += compare(source_server, name, codes_of(name, b"\x8f"))
    assert compared >= (6000 if name in MULTI_BYTE else 127)


def test_gb18030_knows_all_of_unicode():
    """Every character is decoded from the bytes that Python encodes it to.

    Except the two whose codes changed after Python's edition of the standard.
    """
    points = [*range(0xD800), *range(0xE000, 0x10000), *range(0x10000, 0x110000, 101)]
    text = "".join(chr(point) for point in points if point not in (0x1E3F, 0xE7C7))
    assert decode_text(text.encode("gb18030"), "gb18030") == text

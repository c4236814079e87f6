"""Tables of character sets: their shape, and where they leave Python's codecs."""

from __future__ import annotations

import pytest

from canal_server.decoder.text.charset_tables import (
    LEAD,
    MULTI_BYTE,
    SINGLE_BYTE,
    UNDEFINED,
    tables_of,
)


@pytest.mark.parametrize("name", SINGLE_BYTE)
def test_single_bytes_have_no_lead(name):
    """A set of single bytes says something about each byte and has no planes."""
    tables = tables_of(name)
    assert len(tables.singles) == 256
    assert LEAD not in tables.singles
    assert not tables.pairs
    assert not tables.triples
    assert not tables.fours


@pytest.mark.parametrize("name", MULTI_BYTE)
def test_multi_bytes_have_a_plane(name):
    """In a set of several bytes each lead byte opens at least one character."""
    tables = tables_of(name)
    leads = {code >> 8 for code, char in enumerate(tables.pairs) if char}
    if tables.triples:
        leads.add(0x8F)
    assert leads == {byte for byte in range(256) if tables.singles[byte] == LEAD}
    assert list(tables.singles[:128]) == list(range(128))


def test_latin1_is_what_mysql_calls_so():
    """The set latin1 is cp1252, its five holes filled with control characters."""
    singles = tables_of("latin1").singles
    assert chr(singles[0x80]) == "€"
    assert singles[0x81] == 0x81
    assert UNDEFINED not in singles


def test_gb18030_moved_a_letter():
    """U+1E3F and U+E7C7 have the codes that GB 18030 gave them in 2005."""
    tables = tables_of("gb18030")
    assert tables.pairs[0xA8BC] == 0x1E3F
    assert 0x1E3F not in tables.fours
    assert 0xE7C7 in tables.fours


def test_unknown_name():
    """An unknown name raises KeyError."""
    with pytest.raises(KeyError):
        tables_of("klingon")

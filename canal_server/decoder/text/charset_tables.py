"""What the bytes of MySQL's character sets mean.

The tables are Python's codecs with the differences that MySQL and MariaDB show when
they convert a column to utf8mb4. Leaves out Unicode's own encodings and the
conversion itself (`charset_text`).
"""

from __future__ import annotations

from array import array
from functools import cache
from typing import NamedTuple

UNDEFINED = 0xFFFD  # the character for undefined bytes
LEAD = -1  # instead of a character: more bytes follow


class Tables(NamedTuple):
    """The code points of a character set's bytes.

    `singles`: 256 code points, UNDEFINED or LEAD. `pairs`: 65,536 code points by both
    bytes, 0 if undefined, empty for a single-byte set. `triples`: the same for the two
    bytes after 0x8F, `fours`: GB 18030's by their linear number.
    """

    singles: array[int]
    pairs: array[int]
    triples: array[int]
    fours: array[int]


# Python's codec for the single-byte sets, and the bytes that MySQL reads differently.
SINGLE_BYTE: dict[str, tuple[str, dict[int, str]]] = {
    "ascii": ("ascii", {}),
    "cp1250": ("cp1250", {}),
    "cp1251": ("cp1251", {}),
    "cp1256": ("cp1256", {}),
    "cp1257": ("cp1257", {}),
    "cp850": ("cp850", {}),
    "cp852": ("cp852", {}),
    "cp866": ("cp866", {0xFC: "ⁿ", 0xFD: "²"}),
    "greek": ("iso8859-7", {0xA1: "\u02bd", 0xA2: "\u02bc"}),
    "hebrew": ("iso8859-8", {0xAF: "‾"}),
    "hp8": ("hp-roman8", {}),
    "koi8r": ("koi8-r", {}),
    "koi8u": ("koi8-u", {0x95: "•"}),
    "latin1": ("cp1252", {code: chr(code) for code in (0x81, 0x8D, 0x8F, 0x90, 0x9D)}),
    "latin2": ("iso8859-2", {}),
    "latin5": ("iso8859-9", {}),
    "latin7": ("iso8859-13", {}),
    "macce": ("mac-latin2", {}),
    "macroman": ("mac-roman", {}),
    "tis620": ("iso8859-11", {0xA0: "\ufffd"}),
}


def _run(first: int, text: str) -> dict[int, str]:
    return {first + i: char for i, char in enumerate(text)}


# Sets without a Python codec, as differences from a similar set.
SINGLE_BYTE["dec8"] = (
    "latin-1",
    dict.fromkeys(b"\xa4\xa6\xac\xad\xae\xaf\xb4\xb8\xbe\xd0\xde\xf0\xfe\xff", "\ufffd")
    | {0xA8: "¤", 0xD7: "Œ", 0xDD: "Ÿ", 0xF7: "œ", 0xFD: "ÿ"},
)
SINGLE_BYTE["swe7"] = (
    "ascii",
    {0x40: "É", 0x60: "é", 0x7F: "\ufffd"} | _run(0x5B, "ÄÖÅÜ") | _run(0x7B, "äöåü"),
)
SINGLE_BYTE["keybcs2"] = (
    "cp437",
    _run(0x80, "ČüéďäĎŤčěĚĹÍľĺÄÁÉžŽôöÓůÚýÖÜŠĽÝŘťáíóúňŇŮÔšřŕŔ¼¡«»"),
)
SINGLE_BYTE["armscii8"] = (
    "latin-1",
    _run(0xA1, "\u2741§\u0589)(»«—.\u055d,-\u055f…\u055c\u055b\u055e")
    | _run(0xB2, "".join(chr(0x531 + i) + chr(0x561 + i) for i in range(38)))
    | _run(0xFE, "\u2019'"),
)
SINGLE_BYTE["geostd8"] = (
    "latin-1",
    dict.fromkeys((*range(0x80, 0xA0), *range(0xE6, 0x100)), "\ufffd")
    | {0x80: "€", 0x82: "\u201a", 0x89: "‰", 0x8B: "\u2039", 0x9B: "\u203a", 0xFD: "№"}
    | _run(0x84, "„…†‡")
    | _run(0x91, "\u2018\u2019“”•\u2013—")
    | _run(
        0xC0,
        "\u10d0\u10d1\u10d2\u10d3\u10d4\u10d5\u10d6\u10f1\u10d7\u10d8\u10d9\u10da"
        "\u10db\u10dc\u10f2\u10dd\u10de\u10df\u10e0\u10e1\u10e2\u10f3\u10e3\u10e4"
        "\u10e5\u10e6\u10e7\u10e8\u10e9\u10ea\u10eb\u10ec\u10ed\u10ee\u10f4\u10ef"
        "\u10f0\u10f5",
    ),
)

# Python's codec for multi-byte sets, and the bytes that MySQL reads differently.
# gb2312, gbk, euckr need no change: cp949 is the extended set that MySQL means.
MULTI_BYTE: dict[str, tuple[str, dict[int, str]]] = {
    "big5": ("big5", _run(0xF9D6, "碁銹裏墻恒粧嫺")),
    "cp932": ("cp932", {}),
    "eucjpms": ("euc_jp", {}),
    "euckr": ("cp949", {}),
    "gb18030": ("gb18030", {0xA8BC: "ḿ"}),
    "gb2312": ("gb2312", {}),
    "gbk": ("gbk", {}),
    "sjis": ("shift_jis", {0x815F: "\\"}),
    "ujis": ("euc_jp", {0xA1C0: "\\"}),
}
# Where eucjpms differs from ujis, except for cp932 (`_nec_row`, `_ibm_kanji`).
EUCJPMS_PAIRS = {
    0xA1C0: "\uff3c",
    0xA1C1: "\uff5e",
    0xA1C2: "∥",
    0xA1DD: "\uff0d",
    0xA1F1: "\uffe0",
    0xA1F2: "\uffe1",
    0xA2CC: "\uffe2",
}
EUCJPMS_TRIPLES = (
    {0xA2B7: "\uff5e", 0xA2C3: "\uffe4"}
    | _run(0xF3F3, "ⅰⅱⅲⅳⅴⅵⅶⅷⅸⅹⅠⅡ")
    | _run(0xF4A1, "ⅢⅣⅤⅥⅦⅧⅨⅩ\uff07\uff02㈱№℡")
)

# GB 18030's four bytes 81 35 F4 37, where U+1E3F was before it moved to A8 BC.
GB18030_MOVED = 7457


def _decode(codec: str, data: bytes) -> int:
    """Return the single character of these bytes, UNDEFINED if they are not one."""
    try:
        text = data.decode(codec)
    except UnicodeDecodeError:
        return UNDEFINED
    return ord(text) if len(text) == 1 else UNDEFINED


def _single_byte(name: str) -> Tables:
    codec, patches = SINGLE_BYTE[name]
    singles = [_decode(codec, bytes([byte])) for byte in range(256)]
    for byte, char in patches.items():
        singles[byte] = ord(char)
    return Tables(array("l", singles), array("H"), array("H"), array("H"))


def _plane(codec: str, prefix: bytes, leads: range, trails: range) -> array[int]:
    """Return the code points by the two bytes after a prefix."""
    plane = array("H", bytes(2 * 65536))
    for lead in leads:
        for trail in trails:
            char = _decode(codec, prefix + bytes([lead, trail]))
            if char not in (UNDEFINED, 0):
                plane[lead << 8 | trail] = char
    return plane


def _patch(plane: array[int], patches: dict[int, str]) -> None:
    for code, char in patches.items():
        plane[code] = ord(char)


def _euc_user_defined(first: int) -> dict[int, str]:
    """Return rows 85 to 94 of an EUC plane: characters for private use."""
    return {
        (row << 8) | (0xA1 + cell): chr(first + (row - 0xF5) * 94 + cell)
        for row in range(0xF5, 0xFF)
        for cell in range(94)
    }


def _nec_row() -> dict[int, str]:
    """Return row 13 of eucjpms: the characters of cp932 from 0x8740 on."""
    trails = (*range(0x40, 0x7F), *range(0x80, 0x9D))
    chars = (_decode("cp932", bytes([0x87, trail])) for trail in trails)
    row = {0xADA1 + i: chr(char) for i, char in enumerate(chars)}
    return {code: char for code, char in row.items() if ord(char) != UNDEFINED}


def _ibm_kanji() -> str:
    """Return the kanji that IBM added to cp932 and JIS X 0212 does not have."""
    chars = (
        chr(_decode("cp932", bytes([code >> 8, code & 0xFF])))
        for code in range(0xFA5C, 0xFC4C)
    )
    return "".join(
        char
        for char in chars
        if char != chr(UNDEFINED) and char.encode("euc_jp", "ignore") == b""
    )


def _gb18030_fours() -> array[int]:
    """Return the BMP characters of four bytes by their linear number."""
    fours = array("H")
    for number in range(39420):
        rest, fourth = divmod(number, 10)
        rest, third = divmod(rest, 126)
        first, second = divmod(rest, 10)
        code = bytes([0x81 + first, 0x30 + second, 0x81 + third, 0x30 + fourth])
        fours.append(_decode("gb18030", code))
    fours[GB18030_MOVED] = 0xE7C7
    return fours


def _multi_byte(name: str) -> Tables:
    codec, patches = MULTI_BYTE[name]
    euc = codec == "euc_jp"
    leads, trails = range(0x81, 0xFF), range(0x40, 0xFF)
    pairs = _plane(codec, b"", leads, trails)
    triples, fours = array("H"), array("H")
    if euc:
        triples = _plane(codec, b"\x8f", range(0xA1, 0xFF), range(0xA1, 0xFF))
        _patch(pairs, _euc_user_defined(0xE000))
        _patch(triples, _euc_user_defined(0xE3AC))
    if name == "eucjpms":
        _patch(pairs, _nec_row() | EUCJPMS_PAIRS)
        _patch(triples, EUCJPMS_TRIPLES | _run(0xF4AE, _ibm_kanji()))
    if name == "gb18030":
        fours = _gb18030_fours()
    _patch(pairs, patches)

    singles = [_decode(codec, bytes([byte])) for byte in range(256)]
    for code, char in enumerate(pairs):
        if char:
            singles[code >> 8] = LEAD
    if euc:
        singles[0x8F] = LEAD
    return Tables(array("l", singles), pairs, triples, fours)


@cache
def tables_of(name: str) -> Tables:
    """Return the tables of a set in SINGLE_BYTE or MULTI_BYTE, else KeyError.

    The first call for a multi-byte set needs up to 0.1 s.
    """
    return _single_byte(name) if name in SINGLE_BYTE else _multi_byte(name)

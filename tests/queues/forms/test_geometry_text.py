"""Texts of geometries (WKT), made from what the server stores."""

from __future__ import annotations

import json
import math
import struct
from typing import TYPE_CHECKING

import pytest
from fix_random import longer
from form_truth import of_wkt, text_of_geometry
from row_rules import body_of, table_entry

from canal_server.errors import ProtocolError
from canal_server.queues.forms.maxwell_rows import MaxwellRows
from canal_server.queues.table_routes import Route

if TYPE_CHECKING:
    import random

DEPTH_MAX = 32
SRID = b"\0\0\0\0"


def text_of(stored: bytes) -> str:
    """Return the text of a geometry in a message."""
    columns = {"id": ("int", "1"), "g": ("geometry", stored.decode("latin-1"))}
    form = MaxwellRows(lambda *_: Route("x"))
    ((_, _, value, _, _),) = form.convert(1, body_of(table_entry(columns)), 2)
    assert value is not None
    return str(json.loads(value)["data"]["g"])


def wkb(kind: int, content: bytes) -> bytes:
    """Return a geometry without the number of its reference system."""
    return struct.pack("<BI", 1, kind) + content


def point(x: float, y: float) -> bytes:
    """Return a point."""
    return wkb(1, struct.pack("<2d", x, y))


def line(*numbers: float) -> bytes:
    """Return the content of a line of points."""
    return struct.pack(f"<I{len(numbers)}d", len(numbers) // 2, *numbers)


def several(kind: int, *parts: bytes) -> bytes:
    """Return a geometry that consists of others, or of lines."""
    return wkb(kind, struct.pack("<I", len(parts)) + b"".join(parts))


RING = line(0, 0, 4, 0, 4, 4.5, 0, 0)
CASES = {
    point(1, -2.25): "POINT (1 -2.25)",
    point(1e21, 1e-7): "POINT (1000000000000000000000 0.0000001)",
    wkb(2, line(0, 0, 1, 1)): "LINESTRING (0 0, 1 1)",
    several(3, RING, RING): "POLYGON ((0 0, 4 0, 4 4.5, 0 0), (0 0, 4 0, 4 4.5, 0 0))",
    several(4, point(1, 2), point(3, 4)): "MULTIPOINT ((1 2), (3 4))",
    several(5, wkb(2, line(0, 0, 1, 1))): "MULTILINESTRING ((0 0, 1 1))",
    several(6, several(3, RING)): "MULTIPOLYGON (((0 0, 4 0, 4 4.5, 0 0)))",
    several(7, point(1, 2), several(7)): (
        "GEOMETRYCOLLECTION (POINT (1 2), GEOMETRYCOLLECTION EMPTY)"
    ),
}


@pytest.mark.parametrize("stored", CASES, ids=CASES.values())
def test_kinds(stored: bytes) -> None:
    """Each kind has its text; parts of a collection have names, other parts do not."""
    assert text_of(SRID + stored) == CASES[stored]
    assert text_of(b"\xe6\x10\0\0" + stored) == CASES[stored]  # 4326


def test_random(rng: random.Random) -> None:
    """A text stands for the numbers that are stored, bit by bit."""
    for _ in range(longer(500)):
        numbers = [
            struct.unpack("<d", rng.randbytes(8))[0]
            if rng.random() < 0.5
            else rng.randint(-(10**6), 10**6) / 10 ** rng.randint(0, 6)
            for _ in range(2 * rng.randint(1, 5))
        ]
        if not all(map(math.isfinite, numbers)):
            continue
        stored = SRID + wkb(2, line(*numbers))
        assert of_wkt(text_of(stored)) == text_of_geometry(stored)


def nested(depth: int) -> bytes:
    """Return a point in so many collections."""
    found = point(1, 2)
    for _ in range(depth):
        found = several(7, found)
    return found


def test_collections_in_collections() -> None:
    """They may be deep, but not so deep that the stack of the program would end."""
    assert text_of(SRID + nested(DEPTH_MAX)).count("COLLECTION") == DEPTH_MAX
    for depth in (DEPTH_MAX + 1, 10_000):
        with pytest.raises(ProtocolError, match=r"column shop\.orders\.g of type geom"):
            text_of(SRID + nested(depth))


@pytest.mark.parametrize(
    "stored",
    [
        b"\0" + point(1, 2)[1:],  # another order of bytes
        wkb(0, b""),
        wkb(8, b""),
        point(1, 2) + b"x",
        wkb(2, struct.pack("<I", 2**32 - 1)),
        wkb(7, struct.pack("<I", 2**32 - 1)),
        several(3, line(0, 0)[:-1]),
    ],
)
def test_damaged(stored: bytes) -> None:
    """What is no geometry, or ends too early, is an error that names the column."""
    with pytest.raises(ProtocolError, match=r"column shop\.orders\.g of type geometry"):
        text_of(SRID + stored)


def test_ends(rng: random.Random) -> None:
    """A geometry that is cut off anywhere is an error."""
    for stored in map(SRID.__add__, CASES):
        with pytest.raises(ProtocolError):
            text_of(stored[: rng.randrange(len(SRID) + 1, len(stored))])

"""What the storages of the table history write as text, and sums over it."""

from __future__ import annotations

import hashlib
import json
import zlib
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

from canal_server.model.positions import (
    EntryPosition,
    entry_position_from_json,
    entry_position_to_json,
)
from canal_server.tablemeta.storage.history_storage import SourceTraits

if TYPE_CHECKING:
    from collections.abc import Sequence

DIGEST_BYTES: Final = 16


def compact(value: object) -> str:
    """Return JSON on one line."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def place_to_text(position: EntryPosition) -> str:
    """Return a place as canal's JSON."""
    return compact(entry_position_to_json(position))


def place_from_text(text: str) -> EntryPosition:
    """Read what `place_to_text` made; raises ValueError for anything else."""
    return entry_position_from_json(_object(text))


def traits_to_json(traits: SourceTraits) -> dict[str, Any]:
    """Return what differs from the defaults."""
    return {
        field.name: getattr(traits, field.name)
        for field in fields(traits)
        if getattr(traits, field.name) != field.default
    }


def traits_from_json(found: dict[str, Any]) -> SourceTraits:
    """Read what `traits_to_json` made; what a later version added is ignored."""
    names = {field.name for field in fields(SourceTraits)}
    return SourceTraits(**{name: each for name, each in found.items() if name in names})


def traits_to_text(traits: SourceTraits) -> str:
    """Return `traits_to_json` as text."""
    return compact(traits_to_json(traits))


def traits_from_text(text: str) -> SourceTraits:
    """Read what `traits_to_text` made; raises ValueError for anything else."""
    return traits_from_json(_object(text))


def sum_of(values: Sequence[object]) -> int:
    """Return a sum by which changed values are noticed."""
    return zlib.crc32("\0".join(map(str, values)).encode())


def digest_of(*parts: str | bytes) -> bytes:
    """Return what tells this content from any other."""
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for part in parts:
        # Text and bytes differ, too: one flipped bit makes one of the other.
        content, kind = (part.encode(), b":") if isinstance(part, str) else (part, b";")
        digest.update(b"%d%c" % (len(content), kind))
        digest.update(content)
    return digest.digest()


def _object(text: str) -> dict[str, Any]:
    found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError(f"not a JSON object: {text[:40]!r}")  # noqa: TRY004  # content
    return found

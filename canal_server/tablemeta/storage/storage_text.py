"""The text formats of the table history storages, and checksums over them."""

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


def position_to_text(position: EntryPosition) -> str:
    """Return a position in canal's JSON format."""
    return compact(entry_position_to_json(position))


def position_from_text(text: str) -> EntryPosition:
    """Parse the result of `position_to_text`; raises ValueError for anything else."""
    return entry_position_from_json(_object(text))


def traits_to_json(traits: SourceTraits) -> dict[str, Any]:
    """Return the differences from the defaults."""
    return {
        field.name: getattr(traits, field.name)
        for field in fields(traits)
        if getattr(traits, field.name) != field.default
    }


def traits_from_json(found: dict[str, Any]) -> SourceTraits:
    """Parse the result of `traits_to_json`; additions of later versions are ignored."""
    names = {field.name for field in fields(SourceTraits)}
    return SourceTraits(**{name: each for name, each in found.items() if name in names})


def traits_to_text(traits: SourceTraits) -> str:
    """Return `traits_to_json` as text."""
    return compact(traits_to_json(traits))


def traits_from_text(text: str) -> SourceTraits:
    """Parse the result of `traits_to_text`; raises ValueError for anything else."""
    return traits_from_json(_object(text))


def sum_of(values: Sequence[object]) -> int:
    """Return a checksum that detects changed values."""
    return zlib.crc32("\0".join(map(str, values)).encode())


def digest_of(*parts: str | bytes) -> bytes:
    """Return a digest that identifies this content."""
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for part in parts:
        # Text and bytes differ as well: one flipped bit turns one into the other.
        content, kind = (part.encode(), b":") if isinstance(part, str) else (part, b";")
        digest.update(b"%d%c" % (len(content), kind))
        digest.update(content)
    return digest.digest()


def _object(text: str) -> dict[str, Any]:
    found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError(f"not a JSON object: {text[:40]!r}")  # noqa: TRY004  # content
    return found

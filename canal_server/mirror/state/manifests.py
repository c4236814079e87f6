"""A copy's plan and its finished chunks, in files that a restart reads.

`plan.json` has the parameters of the copy; `chunk-….json` says that a chunk was read,
and which files hold it. Both are written once and never changed.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

from canal_server.errors import LakeError
from canal_server.mirror.rows.chunks import Chunk
from canal_server.mirror.settings.table_values import CopiedFile

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from canal_server.mirror.lake.lake_storage import Folder

FORM: Final = 1  # of the JSON
PLAN: Final = "plan.json"


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """The parameters of a copy."""

    seq: int  # number of the position where its changes start
    columns: tuple[tuple[str, str, str], ...]  # name, type, name in the lake
    chunks: tuple[Chunk, ...]

    def write(self, folder: Folder) -> None:
        """Write the plan of a new copy."""
        fields = {
            "form": FORM,
            "seq": self.seq,
            "columns": self.columns,
            "chunks": [asdict(chunk) for chunk in self.chunks],
        }
        folder.write(PLAN, json.dumps(fields).encode())

    @classmethod
    def read(cls, folder: Folder) -> CopyPlan | None:
        """Return the plan of a copy; None if it was not started."""
        fields = _read(folder, PLAN)
        if fields is None:
            return None
        return cls(
            seq=int(fields["seq"]),
            columns=tuple((str(n), str(t), str(u)) for n, t, u in fields["columns"]),
            chunks=tuple(Chunk.from_json(json.dumps(c)) for c in fields["chunks"]),
        )


@dataclass(frozen=True, slots=True)
class ChunkManifest:
    """A chunk that was read, and its files."""

    chunk: int
    rows: int
    files: tuple[CopiedFile, ...]
    place: dict[str, Any] = field(
        default_factory=dict
    )  # only for a table without a key

    @property
    def size(self) -> int:
        """Return the bytes of all files."""
        return sum(file.size for file in self.files)

    @staticmethod
    def name(chunk: int) -> str:
        """Return the name of a chunk's manifest."""
        return f"chunk-{chunk:06}.json"

    def write(self, folder: Folder) -> None:
        """Record that the chunk is done."""
        fields = asdict(self) | {"form": FORM}
        folder.write(self.name(self.chunk), json.dumps(fields).encode())

    @classmethod
    def read(cls, folder: Folder, chunk: int) -> ChunkManifest | None:
        """Return a chunk's manifest; None if it is not done."""
        fields = _read(folder, cls.name(chunk))
        if fields is None:
            return None
        return cls(
            chunk=int(fields["chunk"]),
            rows=int(fields["rows"]),
            files=tuple(CopiedFile(**file) for file in fields["files"]),
            place=dict(fields["place"]),
        )


def finished(
    folder: Folder, chunks: Sequence[Chunk], known: dict[int, ChunkManifest]
) -> Iterator[ChunkManifest]:
    """Yield the manifests of finished chunks that are not in `known`."""
    names = set(folder.names())
    for chunk in chunks:
        if chunk.number not in known and ChunkManifest.name(chunk.number) in names:
            manifest = ChunkManifest.read(folder, chunk.number)
            if manifest is not None:
                yield manifest


def _read(folder: Folder, name: str) -> dict[str, Any] | None:
    data = folder.read(name)
    if data is None:
        return None
    try:
        fields: dict[str, Any] = json.loads(data)
        form = fields.get("form")
    except (ValueError, AttributeError) as error:
        raise LakeError(
            f"{folder}/{name} is not a valid manifest ({error}): delete the folder to "
            "copy the table again"
        ) from error
    if form != FORM:
        raise LakeError(
            f"{folder}/{name} has the form {form!r}, but this version supports {FORM}: "
            "use the version that wrote it, or delete the folder to copy again"
        )
    return fields

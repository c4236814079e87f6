"""What a copy has done: found among many files, and read however long it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from canal_server.mirror.lake.lake_storage import open_folder
from canal_server.mirror.rows.chunks import Chunk
from canal_server.mirror.settings.mirror_settings import LakeSettings
from canal_server.mirror.state.manifests import ChunkManifest, CopyPlan, finished

if TYPE_CHECKING:
    from pathlib import Path

COUNT = 300


class Name(str):
    """A file's name that counts with how many others it was compared."""

    compared = 0
    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        """Compare, and count it."""
        Name.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


class Listed:
    """A folder of manifests: as many names as there are."""

    def __init__(self, numbers: range) -> None:
        self.numbers = numbers

    def names(self) -> list[str]:
        """Return the names of its files."""
        return [Name(ChunkManifest.name(number)) for number in self.numbers]


def test_looking_for_what_is_done() -> None:
    """A look compares each chunk's name with few others, not with all of them."""
    done = range(COUNT)
    folder: Any = Listed(done)
    chunks = [Chunk(number) for number in range(2 * COUNT)]
    known = {number: ChunkManifest(number, 1, ()) for number in done}
    Name.compared = 0
    assert list(finished(folder, chunks, known)) == []
    assert Name.compared < 2 * len(chunks)


def test_what_is_done_is_reported_once(tmp_path: Path) -> None:
    """Known chunks are not returned again, nor unfinished ones."""
    folder = open_folder(LakeSettings(path=str(tmp_path)))
    made = [ChunkManifest(number, number, ()) for number in (0, 2, 3)]
    for each in made:
        each.write(folder)
    chunks = [Chunk(number) for number in range(5)]
    assert list(finished(folder, chunks, {2: made[1]})) == [made[0], made[2]]


def test_a_plan_of_long_keys(tmp_path: Path) -> None:
    """A plan of any length is used by the resumed copy."""
    folder = open_folder(LakeSettings(path=str(tmp_path)))
    key = "商" * 5_000_000
    chunks = tuple(Chunk(n, "PRIMARY", ("a",), (key,), (key,)) for n in range(2))
    plan = CopyPlan(7, (("a", "varchar(9)", "a"),), chunks)
    plan.write(folder)
    assert folder.sizes()["plan.json"] > 64 << 20
    assert CopyPlan.read(folder) == plan

"""Where a table's newest metadata file is recorded: its own folder, or a catalog.

Without a catalog, a table's folder is laid out as Hadoop's tables are, which readers
open by path::

    metadata/v1.metadata.json, v2.metadata.json, …
    metadata/version-hint.text   the number of the newest, or of an older one

The file `v<n>` *is* the commit: it appears complete or not at all, and only one writer
can create it. A process that is killed before leaves files that nothing names; killed
after, an older hint, from which the next reader looks further.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.exceptions import (
    BadRequestError,
    CommitFailedException,
    ForbiddenError,
    NoSuchNamespaceError,
    NoSuchTableError,
    RESTError,
    TableAlreadyExistsError,
)
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.serializers import FromInputFile, ToOutputFile
from pyiceberg.table import (
    CommitTableResponse,
    CreateTableTransaction,
    StagedTable,
    Table,
)
from pyiceberg.table.metadata import TableMetadataV1, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import update_table_metadata

from canal_server.errors import LakeError
from canal_server.mirror.lake.iceberg.iceberg_files import sync
from canal_server.mirror.lake.lake_table import UnusableTableError
from canal_server.mirror.lake.stores.store_errors import denies_access

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyiceberg.catalog import Catalog
    from pyiceberg.io import OutputFile
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.update import TableRequirement, TableUpdate
    from pyiceberg.typedef import Identifier

FORMAT: Final = "2"  # of tables: what all readers know

_HINT: Final = "version-hint.text"
_FILE: Final = re.compile(r"v(\d+)\.metadata\.json")
_UNLINKED: Final = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK)
_REFUSALS: Final = (
    BadRequestError,
    FileNotFoundError,
    ForbiddenError,
    NoSuchNamespaceError,
    NotImplementedError,
    PermissionError,  # pyiceberg's has no number
    TableAlreadyExistsError,
    UnusableTableError,
)
_DENIED: Final = (errno.EACCES, errno.EPERM, errno.EROFS)
_BAD_REQUEST: Final = 400
_SERVER_ERROR: Final = 500
# Who asks is not known (any more), too slow, too early, too often.
_RECOVER: Final = (401, 408, 419, 425, 429)


class FolderCatalog(NoopCatalog):
    """The catalog of a single table in a folder of the file system."""

    def __init__(self, path: str, properties: Mapping[str, str] | None = None) -> None:
        """Set the table's folder; `properties` are pyiceberg's, of its store."""
        super().__init__("folder", **(properties or {}))
        self._path = path
        self._metadata = Path(path) / "metadata"
        self._io = PyArrowFileIO(dict(properties or {}))
        self._kept: Table | None = None

    def load_table(self, identifier: str | Identifier) -> Table:
        """Return the table as of its newest metadata file.

        Raises NoSuchTableError if there is none.
        """
        number = self._newest()
        if number is None:
            raise NoSuchTableError(f"{self._path} has no Iceberg table")
        location = self._location(number)
        if self._kept is not None and self._kept.metadata_location == location:
            return self._kept
        metadata = FromInputFile.table_metadata(self._io.new_input(location))
        self._kept = Table(_parts(identifier), metadata, location, self._io, self)
        return self._kept

    def create_table_transaction(
        self, identifier: str | Identifier, schema: Any, *_: Any, **options: Any
    ) -> CreateTableTransaction:
        """Return a transaction that creates the table, if there is none."""
        metadata = new_table_metadata(
            schema,
            options.get("partition_spec", UNPARTITIONED_PARTITION_SPEC),
            UNSORTED_SORT_ORDER,
            self._path,
            options["properties"],
        )
        return CreateTableTransaction(
            StagedTable(_parts(identifier), metadata, self._location(1), self._io, self)
        )

    def commit_table(
        self,
        table: Table,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> CommitTableResponse:
        """Write the next metadata file.

        Raises CommitFailedException if another writer has written it.
        """
        base, before, number = table.metadata, table.metadata_location, 1
        if isinstance(table, StagedTable):
            # What pyiceberg's own catalogs begin with.
            base = TableMetadataV1.model_construct(last_column_id=-1, schema=Schema())
            before = ""
        else:
            for requirement in requirements:
                requirement.validate(base)
            number = _number(before) + 1
        metadata = update_table_metadata(
            base,
            updates,
            enforce_validation=not before,
            metadata_location=before or None,
        )
        if self._newest() != (number - 1 or None):
            # Numbers that old versions had are free again: that of a writer that was
            # away for long, too.
            raise CommitFailedException(f"{self._path} has a newer version")
        self._write(number, metadata)
        location = self._location(number)
        return CommitTableResponse.model_validate(
            {"metadata": metadata, "metadata-location": location}
        )

    def adopt(self, metadata: TableMetadata, number: int) -> None:
        """Make a table that was made elsewhere the one of this folder.

        Raises CommitFailedException if there is one.
        """
        if self._newest() is not None:
            raise CommitFailedException(f"{self._path} has a table")
        self._write(number, metadata)

    def _write(self, number: int, metadata: TableMetadata) -> None:
        """Create a metadata file that must not exist, then point at it."""
        self._metadata.mkdir(parents=True, exist_ok=True)
        text = _text_of(metadata)
        unique = uuid.uuid4().hex
        temporary = self._metadata / f"{unique}.new"
        try:
            _write_durably(temporary, text)
            _appear(temporary, Path(self._location(number)))
        except FileExistsError:
            raise CommitFailedException(
                f"{self._location(number)} was written by another"
            ) from None
        finally:
            temporary.unlink(missing_ok=True)
        _sync_folder(self._metadata)
        # The commit is done: a failure here leaves an older hint.
        with contextlib.suppress(OSError):
            hint = self._metadata / f"{unique}.hint"
            hint.write_text(str(number))
            hint.replace(self._metadata / _HINT)

    def _newest(self) -> int | None:
        """Return the number of the newest metadata file."""
        try:
            number = int((self._metadata / _HINT).read_text())
        except (OSError, ValueError):
            number = 0
        if not Path(self._location(number)).exists():
            try:
                names = os.listdir(self._metadata)  # noqa: PTH208  # names only
            except FileNotFoundError:
                return None
            found = [
                int(match[1]) for name in names if (match := _FILE.fullmatch(name))
            ]
            return max(found, default=None)
        while Path(self._location(number + 1)).exists():
            number += 1
        return number

    def _location(self, number: int) -> str:
        return f"{self._path}/metadata/v{number}.metadata.json"


class StoreCatalog(FolderCatalog):
    """The same in an object store, for a table that only one mirror writes and reads.

    Stores have no links: the lake's lease keeps other mirrors away. A commit is done
    when its metadata file is there; the hint is at most one commit older.
    """

    def _write(self, number: int, metadata: TableMetadata) -> None:
        location = self._location(number)
        try:
            with self._io.new_output(location).create() as file:
                file.write(_text_of(metadata))
        except FileExistsError:
            raise CommitFailedException(f"{location} was written by another") from None
        hint = self._io.new_output(f"{self._path}/metadata/{_HINT}")
        with hint.create(overwrite=True) as file:
            file.write(str(number).encode())

    def _newest(self) -> int | None:
        number = 0
        with contextlib.suppress(FileNotFoundError):
            hint = self._io.new_input(f"{self._path}/metadata/{_HINT}")
            with hint.open() as file:
                number = int(file.read())
        while self._io.new_input(self._location(number + 1)).exists():
            number += 1
        return number or None


def open_catalog(
    path: str, options: Mapping[str, str], store: Mapping[str, str] | None = None
) -> Catalog:
    """Return the catalog of these options; without any, that of the table's folder.

    `name` among them is what the catalog is called: some find tables by that, too.
    `store` are pyiceberg's properties of the object store of such a folder.

    Raises what pyiceberg raises for options that it does not accept.
    """
    if not options:
        return StoreCatalog(path, store) if "://" in path else FolderCatalog(path)
    rest = {name: value for name, value in options.items() if name != "name"}
    return load_catalog(options.get("name", "default"), **rest)


def identifier_of(target: str) -> Identifier:
    """Return a table's name in a catalog, from its folder below the lake's root."""
    parts = tuple(target.split("/"))
    return parts if len(parts) > 1 else ("default", *parts)


def register(
    catalog: Catalog,
    name: Identifier,
    metadata: TableMetadata,
    output: OutputFile,
    before: Table,
) -> None:
    """Record a table whose files are complete, which was `before` in another folder.

    `output` is the metadata file of a catalog that is not the folder itself. Raises
    what the catalog raises; `is_refusal` says which of that is permanent.
    """
    if isinstance(catalog, FolderCatalog):
        catalog.adopt(metadata, _number(before.metadata_location) + 1)
        return
    ToOutputFile.table_metadata(metadata, output, overwrite=True)
    sync(output.location)
    catalog.create_namespace_if_not_exists(name[:-1])
    catalog.register_table(name, output.location)


def is_refusal(error: Exception) -> bool:
    """Check whether a catalog or a store would answer the same again.

    Not if the store, the catalog or the login to it fails: that may recover.
    """
    if isinstance(error, _REFUSALS):
        return True
    if isinstance(error, RESTError):
        response = getattr(error.__cause__, "response", None)
        status = getattr(response, "status_code", 0)
        return _BAD_REQUEST <= status < _SERVER_ERROR and status not in _RECOVER
    cause = error.__cause__ if isinstance(error, LakeError) else error
    if isinstance(cause, OSError) and cause.errno in _DENIED:
        return True
    return denies_access(str(error))


def removal_order(names: Iterable[str]) -> list[str]:
    """Return the files of `metadata` that name versions, in the order to delete them.

    After each of them, the rest is the newest version still, or no table. For without
    the hint the newest file counts, or in a store those from the first one on.
    """
    found = [name for name in names if _FILE.fullmatch(name)]
    return [_HINT, *sorted(found, key=_number)]


def _text_of(metadata: TableMetadata) -> bytes:
    return metadata.model_dump_json(exclude_none=True, by_alias=True).encode()


def _parts(identifier: str | Identifier) -> Identifier:
    return tuple(identifier.split(".")) if isinstance(identifier, str) else identifier


def _number(location: str) -> int:
    found = _FILE.fullmatch(location.rpartition("/")[2])
    assert found is not None  # as `load_table` found it by this name
    return int(found[1])


def _write_durably(path: Path, data: bytes) -> None:
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(path: Path) -> None:
    """Make the names in a folder survive a crash of the machine."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _appear(source: Path, target: Path) -> None:
    """Give a file its name. FileExistsError if that is taken."""
    try:
        target.hardlink_to(source)
    except FileExistsError:
        # A network file system may repeat a request whose answer was lost.
        if not target.samefile(source):
            raise
    except OSError as error:
        if error.errno not in _UNLINKED:
            raise
        # A file system without links. The lake's lease keeps other mirrors away.
        if target.exists():
            raise FileExistsError(errno.EEXIST, "exists", str(target)) from None
        source.rename(target)

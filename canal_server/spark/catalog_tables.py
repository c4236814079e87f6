"""Tables of Spark's catalog: `CREATE TABLE t USING canal OPTIONS (…)`.

When one is made, Spark asks for its schema with the options, each of them twice, among
properties of the table. When it is read, Spark gives that schema back, and of options
only those of the read. So the schema keeps the options, as metadata of its first field,
but for the password, which anybody could see there. Leaves out what options mean
(`options`).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from pyspark.sql.types import StructField, StructType

from canal_server.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

KEPT: Final = "canal.options"  # key of the metadata
PASSWORD: Final = "password"  # noqa: S105  # its name
_PROVIDER: Final = "provider"  # a property of each table, and no option of ours
_OPTION: Final = "option."


def options_of_new(given: Mapping[str, str]) -> dict[str, str] | None:
    """Return the options of a table that is being made; None: none is.

    The other properties are Spark's own (`owner`, `location`) or the user's
    (`TBLPROPERTIES`), and mean nothing here.
    """
    lower = {name.lower(): text for name, text in given.items()}
    if _PROVIDER not in lower:
        return None
    return {
        name.removeprefix(_OPTION): text
        for name, text in lower.items()
        if name.startswith(_OPTION)
    }


def with_kept(schema: StructType, options: Mapping[str, str]) -> StructType:
    """Return a schema that keeps the options of its table."""
    kept = {name: text if name != PASSWORD else None for name, text in options.items()}
    first, *others = schema.fields
    metadata = (first.metadata or {}) | {KEPT: json.dumps(kept, sort_keys=True)}
    named = StructField(first.name, first.dataType, first.nullable, metadata)
    return StructType([named, *others])


def parted(
    schema: StructType, given: Mapping[str, str]
) -> tuple[StructType, dict[str, str]]:
    """Return a schema without what it keeps, and the options of a read with that.

    Those of the read come first. Raises ConfigError where the password is missing.
    """
    options = {name.lower(): text for name, text in given.items()}
    first = schema.fields[0] if schema.fields else None
    if first is None or KEPT not in (first.metadata or {}):
        return schema, options
    metadata = dict(first.metadata)
    kept = json.loads(metadata.pop(KEPT))
    plain = StructField(first.name, first.dataType, first.nullable, metadata)
    if PASSWORD in kept and PASSWORD not in options:
        problem = (
            "option password is not kept with a table of the catalog: give it with "
            "each read, SELECT … FROM t WITH (password = '…') or "
            ".option('password', '…').table('t')"
        )
        raise ConfigError([problem])
    return StructType([plain, *schema.fields[1:]]), kept | options

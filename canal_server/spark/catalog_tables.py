"""Tables of Spark's catalog: `CREATE TABLE t USING canal OPTIONS (…)`.

When a table is created, Spark asks for its schema and passes each option twice, among
table properties. When it is read, Spark passes that schema, but only the options of the
read. Therefore the schema stores the options as metadata of its first field, except the
password, which anybody could see there. The meaning of options is left to `options`.
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
_PROVIDER: Final = "provider"  # a property of each table, not an option of this source
_OPTION: Final = "option."


def options_of_new(given: Mapping[str, str]) -> dict[str, str] | None:
    """Return the options of a table that is being created; None if none is.

    The other properties belong to Spark (`owner`, `location`) or the user
    (`TBLPROPERTIES`) and have no meaning here.
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
    """Return a schema that stores the options of its table."""
    kept = {name: text if name != PASSWORD else None for name, text in options.items()}
    first, *others = schema.fields
    metadata = (first.metadata or {}) | {KEPT: json.dumps(kept, sort_keys=True)}
    named = StructField(first.name, first.dataType, first.nullable, metadata)
    return StructType([named, *others])


def parted(
    schema: StructType, given: Mapping[str, str]
) -> tuple[StructType, dict[str, str]]:
    """Return a schema without its stored options, and the options of a read with them.

    Options of the read take precedence. Raises ConfigError if the password is missing.
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
            "option password is not stored in catalog tables: pass it with each read, "
            "SELECT … FROM t WITH (password = '…') or "
            ".option('password', '…').table('t')"
        )
        raise ConfigError([problem])
    return StructType([plain, *schema.fields[1:]]), kept | options

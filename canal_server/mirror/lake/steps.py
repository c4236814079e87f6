"""The steps by which a table in the lake follows a DDL.

Names are those of the lake. Leaves out how steps are derived and executed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from canal_server.mirror.lake.value_forms import requested

if TYPE_CHECKING:
    from canal_server.arrow.arrow_columns import RequestedColumn
    from canal_server.mirror.lake.generated.expressions import Generated


@dataclass(frozen=True, slots=True)
class AddColumn:
    """A new column; existing rows get `fill`, or what is computed."""

    name: str
    mysql_type: str
    charset: str
    fill: str | None = None  # in the form of entries: binary as ISO-8859-1
    form: str = ""  # of its values, as in `MirrorColumn`
    generated: Generated | None = None  # computed instead of `fill`

    @property
    def writes(self) -> bool:
        """Whether existing rows may have other values than NULL."""
        return self.fill is not None or self.generated is not None

    @property
    def requested(self) -> RequestedColumn:
        """Return its type in the lake. Raises DecodeError for unknown types."""
        return requested(self.name, self.mysql_type, self.charset, self.form)


@dataclass(frozen=True, slots=True)
class DropColumn:
    """A dropped column, with its values."""

    name: str


@dataclass(frozen=True, slots=True)
class RenameColumn:
    """A renamed column, which keeps its values."""

    old: str
    new: str


@dataclass(frozen=True, slots=True)
class WidenColumn:
    """A column whose type is widened, so that it holds all of its values."""

    name: str
    mysql_type: str
    charset: str

    @property
    def requested(self) -> RequestedColumn:
        """Return its type in the lake. Raises DecodeError for unknown types."""
        return requested(self.name, self.mysql_type, self.charset, "")


Step = AddColumn | DropColumn | RenameColumn | WidenColumn

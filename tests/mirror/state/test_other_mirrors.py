"""A table that another mirror of the same lake writes is left to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

pytest.importorskip("deltalake", reason="the extra `mirror` is not installed")

from canal_server.client.range_client import RangePosition
from canal_server.mirror.follow.leaving import TableStoppedError
from canal_server.mirror.lake.lake_storage import open_folder
from canal_server.mirror.run.copy_target import check_target
from canal_server.mirror.settings.selected_tables import mirror_table
from canal_server.mirror.settings.settings_file import read
from canal_server.mirror.settings.table_values import TableName
from canal_server.mirror.state.lake_tables import lake_schema, open_table
from canal_server.mirror.state.state import Phase, States, TableState
from canal_server.model.columns_known import ColumnMeta

if TYPE_CHECKING:
    from pathlib import Path

TEXT = """name: {name}
canal: {{destination: {name}}}
source: {{host: db-{name}, user: canal}}
lake: {{path: lake, format: {form}}}
tables: [{{match: '.*', to: 'all/orders'}}]
"""
AT = RangePosition(1, "b.000001", 100)


class Mirror:
    """A mirror of one table, which has another name in each source."""

    def __init__(self, folder: Path, name: str, source: str, form: str) -> None:
        text = TEXT.format(name=name, form=form)
        self.settings = read(text, str(folder / "m.yml"), {})
        columns = (ColumnMeta("id", "int", is_key=True),)
        self.source = TableName("shop", source)
        self.table = mirror_table(self.source, columns, self.settings)

    def publish(self, copy_id: str) -> None:
        """Make the table a copy of this mirror."""
        lake = open_table(self.settings, self.table)
        lake.publish(copy_id, lake_schema(self.table), [], 5, {})
        States(open_folder(self.settings.lake, self.settings.folder)).write(
            TableState(self.source, self.table.target, Phase.FOLLOWING, copy_id)
        )

    def check(self, copy_id: str = "") -> None:
        """Check whether it may be copied; no log is read for that."""
        check_target(self.settings, self.table, AT, cast("Any", None), copy_id)


@pytest.mark.parametrize("form", ["delta", "iceberg"])
@pytest.mark.parametrize("source", ["orders", "orders_2"])
def test_another_mirrors_table(tmp_path: Path, form: str, source: str) -> None:
    """It is refused with the mirror's name, until that mirror's folder is deleted."""
    east = Mirror(tmp_path, "east", "orders", form)
    west = Mirror(tmp_path, "west", source, form)
    east.publish("c-east")
    with pytest.raises(TableStoppedError, match="is written by the mirror east"):
        west.check()
    east.check()
    east.check("c-east")
    open_folder(east.settings.lake, east.settings.folder).remove()
    west.check()


@pytest.mark.parametrize("form", ["delta", "iceberg"])
def test_a_table_that_has_changed_hands(tmp_path: Path, form: str) -> None:
    """An old copy of another mirror does not count: the table is this one's now."""
    east = Mirror(tmp_path, "east", "orders", form)
    west = Mirror(tmp_path, "west", "orders", form)
    east.publish("c-east")
    west.publish("c-west")
    west.check("c-west")
    west.check()
    with pytest.raises(TableStoppedError, match="is written by the mirror west"):
        east.check("c-east")

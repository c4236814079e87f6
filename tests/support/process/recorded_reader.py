"""Reads recorded messages with the client; also run by Pythons of installed wheels.

    python recorded_reader.py FOLDER

Prints a line of JSON for each change in the files of the folder, which are bodies of
Messages. It needs the client alone.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from canal_server.client import Message
from canal_server.client.readers import Readers

if TYPE_CHECKING:
    from collections.abc import Iterator


def lines_of(folder: Path) -> Iterator[str]:
    """Yield the lines: values that JSON has not as texts of Python."""
    for path in sorted(folder.iterdir()):
        for change in Message(1, path.read_bytes(), Readers()).changes():
            found = {
                "table": [change.schema, change.table],
                "kind": change.kind,
                "before": change.before,
                "after": change.after,
                "key": change.key,
                "updated": change.updated,
                "sql": change.sql,
                "position": change.position,
                "gtid": change.gtid,
                "time": change.commit_time,
                "transaction": [change.transaction, change.is_last],
            }
            yield json.dumps(found, default=repr)


if __name__ == "__main__":
    for line in lines_of(Path(sys.argv[1])):
        print(line)

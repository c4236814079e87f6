"""A batch for which there is no memory fails, but not those after it."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from row_rules import body_of, table_entry

if TYPE_CHECKING:
    from pathlib import Path

LARGE_BYTES = 30_000_000
# A process of its own, whose memory is limited for the large batch.
SCRIPT = """
import resource, sys
from pathlib import Path

from canal_server.queues.flat_messages import FlatMessages
from canal_server.queues.forms.avro_rows import AvroRows
from canal_server.queues.forms.debezium_rows import DebeziumRows
from canal_server.queues.forms.flat_rows import FlatRows
from canal_server.queues.forms.maxwell_rows import MaxwellRows
from canal_server.queues.table_routes import Route

large, small = (Path(each).read_bytes() for each in sys.argv[2:])
options = {
    "FlatMessages": {}, "FlatRows": {"has_keys": True}, "MaxwellRows": {},
    "DebeziumRows": {"name": "srv"},
    "AvroRows": {"name": "srv", "id_of": lambda *_: 1},
    "CloudEvents": {"name": "srv", "cloud_events": True},
}
form_type = globals()[sys.argv[1].replace("CloudEvents", "DebeziumRows")]
form = form_type(lambda *_: Route("x"), **options[sys.argv[1]])
expected = form.convert(1, small, 2)
soft, hard = resource.getrlimit(resource.RLIMIT_AS)
pages = int(Path("/proc/self/statm").read_text().split()[0])
room = pages * resource.getpagesize() + len(large)
resource.setrlimit(resource.RLIMIT_AS, (room, hard))
try:
    form.convert(1, large, 2)
except MemoryError:
    pass
else:
    sys.exit("there was memory")
resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
assert form.convert(1, small, 2) == expected
"""


@pytest.mark.parametrize(
    "form",
    [
        "FlatMessages", "FlatRows", "MaxwellRows", "DebeziumRows", "AvroRows",
        "CloudEvents",
    ],
)  # fmt: skip
def test_the_next_batch(form: str, tmp_path: Path) -> None:
    """It has the messages that it would have without the other one."""
    paths = []
    for size in (LARGE_BYTES, 1):
        columns = {"id": ("int", "1"), "a": ("text", size * "x")}
        paths.append(tmp_path / f"{size}.bin")
        paths[-1].write_bytes(body_of(table_entry(columns)))
    found = subprocess.run(
        [sys.executable, "-P", "-c", SCRIPT, form, *map(str, paths)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr

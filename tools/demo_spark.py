"""Shows the mirror at work: a shop's tables in a lake, followed while the shop works.

    python tools/demo_spark.py [--seconds N] [--keep FOLDER]

MYSQL_URL names a server to use; the demo then works in a schema of its own and drops
it. Otherwise it starts a private MySQL (`servers`). It leaves nothing running, and no
files except those that make the next run faster and those that --keep asks for.

Exit status: 0 everything worked, 1 something failed or is missing, 128 + n ended by
signal n.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import re
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import demo_run
from demo_run import DESTINATION, DemoFailed, signals_delayed
from servers import PrivateServer, Server
from zookeepers import find_java

try:
    from mirror_process import MirrorFailed, MirrorProcess
except ModuleNotFoundError as error:
    sys.exit(f"demo: {error.name} is missing: pip install 'canal-server[mirror]'")

ORDERS = 100_000  # in the beginning
PAUSE_S = 0.002  # between two transactions of the load
SETTINGS = r"""
tables:
  - {match: 'SCHEMA\.customers', masks: {email: hash, phone: {truncate: 6}}}
  - {match: 'SCHEMA\..*'}
copy: {keyless_lock: true}  # a short lock when the copy of `visits` begins
spark: {spark.python.authenticate.socketTimeout: 120s}  # the machine may be busy
"""
SQL = Path(__file__).with_suffix(".sql")
TABLES = ("customers", "orders", "order_items", "visits")


def demo(stack: contextlib.ExitStack, seconds: float, keep: Path | None) -> None:
    """Run the demo."""
    print("Setting up")
    if not os.environ.get("JAVA_HOME"):
        os.environ["JAVA_HOME"] = str(Path(find_java()).resolve().parents[1])
    # Ends last: its work fails as soon as the server or the schema is removed.
    pool = stack.enter_context(ThreadPoolExecutor(1))
    source, schema, folder = demo_run.set_up(stack, ["mysql"], keep and keep.absolute())
    _, tables, lines, ddl = re.split("--.*\n", SQL.read_text("utf-8"))
    source.execute(f"USE {schema}", *tables.split(";\n")[:-1])
    if isinstance(source, PrivateServer):  # for `keyless_lock`
        source.execute(f"GRANT LOCK TABLES ON {schema}.* TO '{source.user}'@'%'")
    process, port = demo_run.start_canal_server(stack, folder)

    print("\nThe mirror copies the tables; its settings:")
    names = {"destination": DESTINATION, "tables": SETTINGS.replace("SCHEMA", schema)}
    mirror = MirrorProcess(folder, source, ("127.0.0.1", port), **names)
    print(mirror.conf.read_text())
    with signals_delayed():
        stack.callback(mirror.stop)
        mirror.launch()
    ending = threading.Event()
    load = pool.submit(work, source, schema, lines.splitlines(), ending)
    for table in TABLES:
        wait_for_copy(mirror, f"{schema}/{table}")

    print("\nThe mirror follows the load, and:")
    for sql in ddl.splitlines():
        with contextlib.suppress(TimeoutError):  # the load still runs, as it should
            load.result(seconds / len(ddl.splitlines()))
        mirror.check()
        print(f"  sql> {sql}")
        source.execute(f"USE {schema}", sql)
    wait_for_copy(mirror, f"{schema}/returns")
    execute(mirror, "status")

    print("\nThe load ends, and the lake is compared with the source")
    ending.set()
    load.result()
    execute(mirror, "verify")
    if any(statuses := (mirror.stop(), demo_run.stop(process))):
        raise DemoFailed(f"mirror and canal-server ended with statuses {statuses}")
    print(f"  the lake's tables equal the source's{f': {mirror.lake}' if keep else ''}")


def work(source: Server, schema: str, load: list[str], ending: threading.Event) -> None:
    """Execute random lines of the load until the end."""
    chance = random.Random(7)
    with source.connect(database=schema) as connection:
        while not ending.wait(PAUSE_S):
            sql = chance.choice(load).format(n=chance.randint(1, ORDERS))
            for statement in sql.split("; "):
                connection.cursor().execute(statement)


def wait_for_copy(mirror: MirrorProcess, table: str) -> None:
    """Wait until a table has a copy in the lake, and print its rows."""
    mirror.wait(lambda: mirror.is_there(table), f"the copy of {table}", 300.0)
    print(f"  {table} has {mirror.rows(table):,} rows in the lake")


def execute(mirror: MirrorProcess, action: str) -> None:
    """Run an action of the mirror and print its output. Raises DemoFailed."""
    status, output = mirror.run(action)
    print(f"  canal-server mirror {action} --conf mirror.yml\n{output}")
    if status:
        raise DemoFailed(f"`canal-server mirror {action}` ended with status {status}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Show the mirror at work.")
    parser.add_argument("--seconds", type=float, default=30.0, help="of load (30)")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="for all files")
    options = vars(parser.parse_args())
    sys.exit(demo_run.run(lambda stack: demo(stack, **options), MirrorFailed))

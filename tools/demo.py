"""Shows canal-server at work: a bookshop on a database, and a client that follows it.

    python tools/demo.py [mysql|mariadb]

MYSQL_URL (or MARIADB_URL) names a server to use; the demo then works in a schema of
its own and drops it. Otherwise it starts a private server (`servers`). It leaves
nothing running, and no files except those that make the next run faster.

Exit status: 0 everything worked, 1 something failed or is missing, 128 + n ended by
signal n.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import quantiles
from typing import TYPE_CHECKING, Any

from demo_run import DESTINATION, DemoFailed, run, set_up, start_canal_server, stop
from pymysql.cursors import Cursor, DictCursor

from canal_server.client import CanalClient
from canal_server.client.entry_format import text_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from contextlib import ExitStack
    from subprocess import Popen

    from canal_server.client import Change, Message

    Rows = dict[int, dict[str, Any]]  # by id
    Copy = dict[str, Rows]  # by table

FLAVOURS = ("mysql", "mariadb")
QUIET_SECONDS_MAX = 30.0  # without a change although some are due
SINGLES, BURST, BURST_ROWS = 400, 100, 1000  # transactions; rows of one of a burst
SQL = Path(__file__).with_suffix(".sql")  # one transaction a line
SALE = "INSERT INTO sale (book, pieces) VALUES (1, 1)"


def demo(stack: ExitStack, flavours: Sequence[str]) -> None:
    """Run the demo."""
    print("Setting up")
    # Ends last: its work fails as soon as the server or the schema is removed.
    pool = stack.enter_context(ThreadPoolExecutor(1))
    source, schema, folder = set_up(stack, flavours)
    shop = stack.enter_context(source.connect(database=schema)).cursor(DictCursor)
    process, client = start(stack, folder)
    copy: Copy = {}

    print("\nChanges, as the client receives them")
    *steps, before_kill, after_kill = SQL.read_text("utf-8").splitlines()
    for sql in steps:
        execute(shop, sql)
        messages, changes = take(client)
        show(copy, messages, changes)

    print("\nThe server is killed before the client acknowledges a change")
    wait_until_stored(folder, messages[-1])
    execute(shop, before_kill)
    show(copy, *take(client, ack=False))
    process.kill()
    process.wait()
    print("\n  canal-server is killed (SIGKILL)")
    execute(shop, after_kill)
    process, client = start(stack, folder)
    print("  The unacknowledged change is delivered again, then what was missed:")
    show(copy, *take(client, 1 + 2))  # rows

    print("\nHow fast, from the writer to the client")
    latencies_ms = []
    for _ in range(SINGLES):
        sent_at = time.monotonic()
        shop.execute(SALE)
        apply(copy, take(client)[1])
        latencies_ms.append((time.monotonic() - sent_at) * 1e3)
    cuts = quantiles(latencies_ms, n=100, method="inclusive")
    print(f"  {SINGLES} transactions: median {cuts[49]:.1f} ms, p99 {cuts[98]:.1f} ms")

    def write_burst() -> None:
        with source.connect(database=schema) as connection:
            for _ in range(BURST):
                connection.cursor().execute(SALE + ", (2, 3)" * (BURST_ROWS - 1))

    started_at = time.monotonic()
    burst = pool.submit(write_burst)
    _, changes = take(client, rows := BURST * BURST_ROWS)
    seconds = time.monotonic() - started_at
    burst.result()
    print(f"  {rows:,} rows in {seconds:.2f} s: {rows / seconds:,.0f} rows/s")
    apply(copy, changes)

    print("\nIn the end")
    for table, copied in copy.items():
        shop.execute(f"SELECT * FROM {table}")
        if wrong := differences(copied, shop.fetchall()):
            raise DemoFailed(f"{table}: {len(wrong)} differences; {wrong[0]}")
        print(f"  the client's copy equals the table {table}: {len(copied):,} rows")
    if status := stop(process):
        raise DemoFailed(f"canal-server ended with status {status}")


def start(stack: ExitStack, folder: Path) -> tuple[Popen[bytes], CanalClient]:
    """Start canal-server and a subscribed client, which gets what it did not ack."""
    process, port = start_canal_server(stack, folder)
    client = stack.enter_context(CanalClient("127.0.0.1", port, DESTINATION))
    client.subscribe()
    print(f"  client  subscribed to destination {DESTINATION}")
    return process, client


def execute(shop: Cursor, sql: str) -> None:
    """Print statements and execute them."""
    print(f"\n  sql> {sql}")
    for statement in sql.split("; "):
        shop.execute(statement)


def take(
    client: CanalClient, count: int = 1, *, ack: bool = True
) -> tuple[list[Message], list[Change]]:
    """Receive at least so many changes, and whole transactions only."""
    messages: list[Message] = []
    changes: list[Change] = []
    while len(changes) < count or not messages[-1].ends_transaction:
        message = client.get(4096, timeout_s=QUIET_SECONDS_MAX)
        if not message:
            raise DemoFailed(f"{count - len(changes):,} changes did not arrive")
        changes += message.changes()
        messages.append(message)
        if ack:
            client.ack(message.id)
    return messages, changes


def show(copy: Copy, messages: Iterable[Message], changes: Iterable[Change]) -> None:
    """Print messages as `canal-server tail` does, and apply their changes."""
    entries = [entry for message in messages for entry in message.entries]
    print(*(f"  {line}" for entry in entries for line in text_lines(entry)), sep="\n")
    apply(copy, changes)


def apply(copy: Copy, changes: Iterable[Change]) -> None:
    """Apply changes to the copy; repeating them is harmless."""
    for change in changes:
        if change.before is change.after is None:
            continue  # a statement
        table = copy.setdefault(change.table, {})
        if change.before is not None:
            table.pop(change.before["id"], None)
        if change.after is not None:
            table[change.after["id"]] = change.after


def differences(copied: Rows, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a line for each row that differs between a copy and its table."""
    table = {row["id"]: dict(row) for row in rows}
    # A column that was added after a row is NULL in the table, absent in the copy.
    copied = {key: dict.fromkeys(table.get(key, ())) | copied[key] for key in copied}
    return [
        f"row {key} is {table.get(key)} in the table, {copied.get(key)} in the copy"
        for key in table | copied
        if table.get(key) != copied.get(key)
    ]


def wait_until_stored(folder: Path, message: Message) -> None:
    """Wait until canal-server has written the position of an acked message to disk."""
    meta = folder / DESTINATION / "meta.dat"
    position = f'"position":{message.entries[-1].header.logfile_offset},'
    for _ in range(300):
        if meta.exists() and position in meta.read_text():
            return
        time.sleep(0.1)
    raise DemoFailed(f"canal-server did not write {position} to {meta} in 30 s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Show canal-server at work.")
    parser.add_argument("flavour", nargs="?", choices=FLAVOURS)
    chosen = parser.parse_args().flavour
    # A named server is used alone; otherwise MySQL is tried before MariaDB.
    named = [name for name in FLAVOURS if os.environ.get(f"{name.upper()}_URL")]
    flavours = [chosen] if chosen else named[:1] or FLAVOURS
    sys.exit(run(lambda stack: demo(stack, flavours)))

"""Record the DDL of scripts as it stands in the binlog, with the server's own answer.

`record_ddl.py mariadb OUT.jsonl.xz SCRIPT_OR_FOLDER …` runs each script on a private
server that is empty at first: SQL, `*.test` of the servers' regression suites,
`random:SEED` for statements that are made up, `forms:NAME` for a list of `ddl_forms`.
It writes a JSON line for each DDL statement in the binlog: its text and context, and
the columns of the tables that it changed as information_schema reports them.
`benchmarks/ddl_agreement.py` measures with such files.
"""

from __future__ import annotations

import argparse
import json
import lzma
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from ddl_forms import FORMS
from ddl_recorder import EndOfStream, RecordingServer, Unwell
from mysqltest_script import Runner, scripts_below
from random_ddl import RandomScript
from servers import Unavailable

if TYPE_CHECKING:
    from collections.abc import Sequence

SCRIPTS_PER_SERVER = 60  # what scripts leave behind slows a server down


class Recorder:
    """Runs scripts one after another, each as a stream, on servers of one flavour."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._server: RecordingServer | None = None
        self._used = 0

    def stop(self) -> None:
        """End the server."""
        if self._server is not None:
            self._server.stop()
            self._server = None

    def record(self, script: Path, name: str) -> list[str]:
        """Run a script; returns its lines as JSON."""
        server = self._ready()
        try:
            self._run(server, script)
        except EndOfStream:
            pass
        except Unwell as error:
            print(f"  the server {error}", file=sys.stderr)
            self.stop()
        except RecursionError:
            print("  blocks too deep", file=sys.stderr)
        return [
            json.dumps(
                {"file": name, "seq": seq, **line},
                ensure_ascii=False,
                separators=(",", ":"),
            )
            for seq, line in enumerate(server.lines)
        ]

    def _run(self, server: RecordingServer, script: Path) -> None:
        kind, _, seed = str(script).partition(":")
        if kind == "random" and seed.isdecimal():
            RandomScript(server, int(seed)).run()
            return
        if kind == "forms":
            for statement in FORMS[seed]():
                server.run_text(statement)
            return
        runner = Runner(server, [Path(root) for root in self._options.root])
        for setting in self._options.variable:
            key, _, value = setting.partition("=")
            runner.variables[key] = value
        runner.run(script)

    def _ready(self) -> RecordingServer:
        """Return a server without schemas, a new one when that is needed."""
        options = self._options
        if self._used % SCRIPTS_PER_SERVER == 0:
            self.stop()
        self._used += 1
        for _ in range(2):
            if self._server is None:
                self._server = RecordingServer(options.flavour, options.option)
            try:
                self._server.begin(seconds=options.seconds, lines_max=options.lines)
            except Unwell as error:
                print(f"  the server {error}", file=sys.stderr)
                self.stop()
            else:
                return self._server
        raise Unavailable("a new server cannot be used either")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("flavour", choices=["mysql", "mariadb"])
    parser.add_argument("out", type=Path, help="*.jsonl.xz; is overwritten")
    parser.add_argument("scripts", type=Path, nargs="+", help="files and folders")
    parser.add_argument("--root", action="append", default=[], metavar="FOLDER",
                        help="where files that scripts source are")  # fmt: skip
    parser.add_argument("--variable", action="append", default=[], metavar="NAME=TEXT",
                        help="of the script language")  # fmt: skip
    parser.add_argument("--option", action="append", default=[], help="of the server")
    parser.add_argument("--seconds", type=float, default=60, help="for each script")
    parser.add_argument("--lines", type=int, default=300, help="of each script")
    parser.add_argument("--ddl-min", type=int, default=2, help="lines worth keeping")
    options = parser.parse_args(arguments)
    recorder = Recorder(options)
    base = Path(options.root[0]) if options.root else Path()
    try:
        with lzma.open(options.out, "wt", encoding="utf-8", preset=6) as out:
            for script in scripts_below(options.scripts):
                inside = base in script.parents
                name = str(script.relative_to(base) if inside else script)
                started = time.monotonic()
                lines = recorder.record(script, name)
                seconds = time.monotonic() - started
                print(f"{name}: {len(lines)} lines, {seconds:.1f} s", flush=True)
                if len(lines) >= options.ddl_min:
                    out.write("".join(f"{line}\n" for line in lines))
    except Unavailable as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        recorder.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())

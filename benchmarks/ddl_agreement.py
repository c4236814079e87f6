"""Compares tables made from DDL with what the servers themselves said.

Reads corpora, files of JSON lines that each hold a statement as it stood in a binlog
and the tables that it changed, and after each statement compares all tables with
those of a subject. After a disagreement the subject is given the truth, and goes on.
Statements that the model did not understand are counted, too, as it says so itself.

Usage: ddl_agreement.py [--subject COMMAND] [--limit N] [--doubts] [CORPUS …]
"""

from __future__ import annotations

import argparse
import json
import lzma
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    sys.path.insert(0, str(Path(__file__).resolve().parent))

from ddl_subject import Subject, is_mariadb

if TYPE_CHECKING:
    from collections.abc import Iterator

Line = dict[str, Any]
Columns = list[tuple[Any, ...]]

CORPORA = Path(__file__).resolve().parent.parent.parent / "shared" / "ddl"
STATEMENT_CHARS_MAX = 400


class Asked(Protocol):
    """What is compared with the truth."""

    def reset(self) -> None:
        """Begin with an empty server."""

    def apply(self, line: Line) -> object:
        """Do a statement."""

    def load(self, schema: str, creates: list[str]) -> None:
        """Put exactly these tables into a schema."""

    def tables(self, schema: str) -> dict[str, list[dict[str, Any]]]:
        """Return a schema's tables."""


class Program:
    """A program that speaks the line protocol."""

    def __init__(self, command: str) -> None:
        self._process = subprocess.Popen(
            shlex.split(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def _say(self, line: Line) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(line) + "\n")

    def reset(self) -> None:
        """Begin with an empty server."""
        self._say({"op": "reset"})

    def apply(self, line: Line) -> None:
        """Do a statement."""
        self._say({"op": "apply", **line})

    def load(self, schema: str, creates: list[str]) -> None:
        """Put exactly these tables into a schema."""
        self._say({"op": "load", "schema": schema, "create": creates})

    def tables(self, schema: str) -> dict[str, list[dict[str, Any]]]:
        """Return a schema's tables."""
        self._say({"op": "tables", "schema": schema})
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise SystemExit("the subject ended")
        found: dict[str, list[dict[str, Any]]] = json.loads(answer)
        return found


@dataclass(frozen=True)
class Disagreement:
    """A statement after which the tables are not the server's."""

    line: Line
    differences: list[str]

    def __str__(self) -> str:
        sql = self.line["sql"][:STATEMENT_CHARS_MAX]
        reported = "\n    ".join(self.differences[:12])
        return f"{self.line['file']} {self.line['seq']}: {sql}\n    {reported}"


@dataclass
class Sum:
    """What was found out about one flavour."""

    statements: int = 0
    changing: int = 0
    disagreeing: int = 0
    letters_disagreeing: int = 0
    doubts: list[str] = field(default_factory=list)
    seconds: float = 0.0
    streams: set[str] = field(default_factory=set)
    bad_streams: set[str] = field(default_factory=set)

    def __str__(self) -> str:
        changing = max(self.changing, 1)
        return (
            f"{self.changing - self.disagreeing} of {self.changing} changing statements"
            f" ({1 - self.disagreeing / changing:.2%}) agree, letter by letter"
            f" {1 - self.letters_disagreeing / changing:.2%};"
            f" {len(self.streams) - len(self.bad_streams)} of {len(self.streams)}"
            f" streams without any disagreement; {len(self.doubts)} not understood;"
            f" {self.statements} statements in"
            f" {self.seconds:.1f} s, {self.statements / max(self.seconds, 1e-9):.0f}/s"
        )


class Truth:
    """The tables as the server said, collected from the lines of a stream."""

    def __init__(self) -> None:
        self.schemas: dict[str, dict[str, Line]] = {}

    def take(self, changed: dict[str, dict[str, Line | None]]) -> None:
        """Take note of what a line says."""
        for schema, tables in changed.items():
            into = self.schemas.setdefault(schema, {})
            for name, table in tables.items():
                if table is None:
                    into.pop(name, None)
                else:
                    into[name] = table

    def columns(self, schema: str) -> dict[str, Columns]:
        """Return the columns of a schema's tables."""
        return {
            name: [tuple(column[:5]) for column in table["columns"]]
            for name, table in self.schemas.get(schema, {}).items()
        }

    def creates(self, schema: str) -> list[str]:
        """Return the CREATE TABLE texts of a schema."""
        return [table["create"] for table in self.schemas.get(schema, {}).values()]


def lines_of(path: Path) -> Iterator[Line]:
    """Yield the lines of a corpus."""
    with lzma.open(path, "rt") if path.suffix == ".xz" else path.open() as file:
        for text in file:
            yield json.loads(text)


def compare(
    subject: Asked, lines: Iterator[Line], total: Sum
) -> Iterator[Disagreement]:
    """Yield the disagreements; what else was found is added to `total`."""
    truth = Truth()
    stream = ""
    for line in lines:
        if line["file"] != stream:
            stream = line["file"]
            truth = Truth()
            subject.reset()
            total.streams.add(stream)
        total.statements += 1
        began = time.perf_counter()
        applied = subject.apply(line)
        total.seconds += time.perf_counter() - began
        problem = getattr(applied, "problem", "")
        if problem:
            sql = line["sql"][:STATEMENT_CHARS_MAX]
            total.doubts.append(f"{stream} {line['seq']}: {sql}\n    {problem}")
        changed = line["tables_changed"]
        if changed is None:
            continue  # nobody looked; a later line has the sum
        truth.take(changed)
        differences: list[str] = []
        letters = False
        for schema in {*truth.schemas, line["schema"]}:
            found = differ(truth.columns(schema), reported(subject, schema))
            differences += (f"{schema}.{each}" for each, _ in found)
            letters = letters or any(of_type for _, of_type in found)
            if found:
                subject.load(schema, truth.creates(schema))
        total.changing += bool(changed or differences)
        total.letters_disagreeing += letters
        if differences:
            total.disagreeing += 1
            total.bad_streams.add(str(stream))
            yield Disagreement(line, differences)


def reported(subject: Asked, schema: str) -> dict[str, Columns]:
    """Return what the subject says, in the form of the truth."""
    return {
        name: [
            (c["name"], c["type"], int(c["nullable"]), int(c["key"]), c["charset"])
            for c in columns
        ]
        for name, columns in subject.tables(schema).items()
    }


def differ(
    truth: dict[str, Columns], reported: dict[str, Columns]
) -> list[tuple[str, bool]]:
    """Return differences, and of each whether it is the text of a type."""
    found: list[tuple[str, bool]] = []
    for name in sorted({*truth, *reported}):
        if name not in reported:
            found.append((f"{name}: the server has it", False))
        elif name not in truth:
            found.append((f"{name}: the server has it not", False))
        elif [c[0] for c in truth[name]] != [c[0] for c in reported[name]]:
            names = [c[0] for c in truth[name]], [c[0] for c in reported[name]]
            found.append(
                (f"{name}: columns {names[0]}, but reported {names[1]}", False)
            )
        else:
            for right, wrong in zip(truth[name], reported[name], strict=True):
                if right != wrong:
                    text = f"{name}.{right[0]}: {right[1:]}, but reported {wrong[1:]}"
                    found.append((text, right[1] != wrong[1]))
    return found


def flavour_of(path: Path) -> str:
    """Return the flavour of a corpus."""
    return "mariadb" if is_mariadb(next(lines_of(path))) else "mysql"


def main() -> int:
    """Print the figures and each disagreement; 1 when there is one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--subject", help="a program that speaks the line protocol")
    parser.add_argument(
        "--limit", type=int, default=1000, help="disagreements reported"
    )
    parser.add_argument("--doubts", action="store_true", help="print them, too")
    parser.add_argument("corpora", nargs="*", type=Path)
    arguments = parser.parse_args()
    paths = arguments.corpora or sorted(CORPORA.glob("*.jsonl.xz"))
    if not paths:
        parser.error(f"no corpora are given, and none are in {CORPORA}")

    sums: dict[str, Sum] = {}
    reported = 0
    for path in paths:
        flavour = flavour_of(path)
        total = sums.setdefault(flavour, Sum())
        subject: Asked = (
            Program(arguments.subject)
            if arguments.subject
            else Subject(mariadb=flavour == "mariadb")
        )
        for disagreement in compare(subject, lines_of(path), total):
            reported += 1
            if reported <= arguments.limit:
                print(disagreement)
    for flavour, total in sums.items():
        if arguments.doubts:
            print("".join(f"{each}\n" for each in total.doubts), end="")
        print(f"{flavour}: {total}")
    return int(any(total.disagreeing for total in sums.values()))


if __name__ == "__main__":
    sys.exit(main())

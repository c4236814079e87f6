"""The options of the source, typed and validated.

Spark passes texts by case-insensitive names. The effect of the options is left to the
readers; docs/reference/spark.md documents them.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from canal_server.errors import ConfigError
from canal_server.model.positions import binlog_file_number

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

DEFAULT_PORT: Final = 11111
PORT_MAX: Final = 65535
SUBSCRIPTION: Final = re.compile(r"[A-Za-z0-9_.-]{1,100}", re.ASCII)
# The forms of a binlog position; the server parses the rest of the text.
POSITIONS: Final = re.compile(r"acked|earliest|latest|time:.+|file:.+:\d+|gtid:.+")
POSITION_FORMS: Final = (
    "acked, earliest, latest, time:<ms or ISO time with zone>, file:<name>:<offset> "
    "or gtid:<set>"
)
WHOLE_MAX: Final = 2**62
RANGE: Final = "range"  # how rows are distributed to tasks
DESTINATION: Final = "destination"
KEYHASH: Final = "keyhash"
PACKED: Final = "arrow"  # payload: packed runs of rows


class Address(NamedTuple):
    """One server of the list."""

    host: str
    port: int

    def __str__(self) -> str:
        return (
            f"[{self.host}]:{self.port}"
            if ":" in self.host
            else ":".join((self.host, str(self.port)))
        )


class TableName(NamedTuple):
    """The table of a typed stream."""

    schema: str
    table: str

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """All options, validated; sent to the executors as part of readers."""

    servers: tuple[Address, ...]
    destinations: tuple[str, ...]
    subscription: str = ""
    username: str = ""
    password: str = ""
    tls: bool = False
    tls_ca_file: str = ""
    tls_cert_file: str = ""
    tls_key_file: str = ""
    filter: str = ""
    # Which rows, in which form
    table: TableName | None = None
    columns: tuple[str, ...] = ()
    payload: str = "map"
    updates: str = "postimage"
    key_changes: str = "split"
    zero_dates: str = "null"
    time_zone: str = ""
    schema_change: str = "fail"
    truncates: str = "fail"
    # The range
    starting_position: str = ""
    ending_position: str = ""
    fail_on_data_loss: bool = True
    ack_on: str = "latestOffset"
    wire: str = "binlog"
    # The size of batches
    max_rows_per_trigger: int = 1_000_000
    max_bytes_per_trigger: int = 0
    partition_by: str = RANGE
    min_partition_rows: int = 20_000
    max_partitions: int = 8
    # Timeouts
    poll_timeout_ms: int = 500
    request_timeout_ms: int = 60_000
    retry_timeout_ms: int = 60_000

    def __repr__(self) -> str:
        """Return the servers and destinations, but no secret."""
        servers = ",".join(map(str, self.servers))
        return f"<canal {','.join(self.destinations)} at {servers}>"

    @property
    def is_packed(self) -> bool:
        """Whether a row for Spark contains a run of rows of a table."""
        return self.payload == PACKED

    @property
    def wire_filter(self) -> str:
        """The filter expression for the selected tables; empty: that of the server."""
        if self.table is None:
            return self.filter
        return rf"{quoted(self.table.schema)}\.{quoted(self.table.table)}"


def read_options(
    options: Mapping[str, str], *, streaming: bool | None = None
) -> SourceOptions:
    """Return the options that Spark passed.

    Options that only a stream or only a batch read may have are checked once that is
    known. Raises ConfigError with a sentence for each problem: option, value, remedy.
    """
    given = {name.lower(): text for name, text in options.items()}
    reader = _Reader(given)
    read = {
        option.field: reader.value(option)
        for option in OPTIONS
        if option.name.lower() in given
    }
    reader.check_names()
    reader.check_together()
    if streaming is not None:
        reader.check_use(streaming=streaming)
    if reader.problems:
        raise ConfigError(reader.problems)
    read.setdefault("servers", (Address("127.0.0.1", DEFAULT_PORT),))
    is_postimage = read.get("updates", "postimage") == "postimage"
    if not is_postimage and read.get("partition_by") != KEYHASH:
        # Both row images are present: the consumer sees the old key.
        read.setdefault("key_changes", "keep")
    return SourceOptions(**read)  # type: ignore[arg-type]


class _Reader:
    """Parses values and collects problems."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = given
        self.problems: list[str] = []

    def value(self, option: Option) -> object:
        """Return the value of an option; None if it has a problem."""
        text = self._given[option.name.lower()]
        try:
            return option.read(text.strip())
        except ValueError as error:
            shown = "(hidden)" if option.field == "password" else repr(text[:200])
            self.problems.append(f"option {option.name} = {shown}: {error}")
            return None

    def check_names(self) -> None:
        """Report unknown options, with the most similar known one."""
        known = {option.name.lower(): option.name for option in OPTIONS}
        for name in self._given:
            if name in known or name.startswith(("_", "spark.")):
                continue
            near = difflib.get_close_matches(name, known, 1)
            hint = (
                f"did you mean {known[near[0]]}?"
                if near
                else "see docs/reference/spark.md"
            )
            self.problems.append(f"unknown option {name}; {hint}")

    def check_use(self, *, streaming: bool) -> None:
        """Report options that a stream or a batch read lacks, or must not have."""
        if not streaming:
            for name in ("startingPosition", "endingPosition"):
                if self._text(name) == "acked" and not self._has("subscription"):
                    self._add(f"option {name} = acked: set option subscription")
            self._check_order()
            return
        if not self._has("subscription"):
            self._add(
                "option subscription is missing: a stream needs its own name, under "
                "which the server stores its progress"
            )
        if self._has("endingPosition"):
            self._add("option endingPosition is only for batch reads; remove it")

    def _check_order(self) -> None:
        """Report an end that is before the start.

        If there are no changes between the two, both have the same binlog position.
        """
        start, end = (
            _order_of(self._text(name))
            for name in ("startingPosition", "endingPosition")
        )
        if start and end and start[0] == end[0] and end < start:
            self._add(
                f"endingPosition = {self._text('endingPosition')} is before"
                f" startingPosition = {self._text('startingPosition')}; swap the two"
            )

    def check_together(self) -> None:
        """Report missing options, and options that exclude each other."""
        has = self._has
        if not has("destination"):
            self._add(
                "option destination is missing: set the destination of the server; a "
                "catalog table keeps its options only if CREATE TABLE has no columns"
            )
        for name in ("tlsCaFile", "tlsCertFile", "tlsKeyFile"):
            if has(name) and not has("tls"):
                self._add(f"option {name} requires option tls = true")
        if has("table") and has("filter"):
            self._add("options table and filter exclude each other; remove filter")
        if not has("table"):
            for name in ("updates", "keyChanges", "columns", "zeroDates", "truncates"):
                if has(name):
                    self._add(f"option {name} requires option table")
            self._check_packed()
        elif has("payload"):
            self._add("option payload has no effect with option table; remove it")
        else:
            self._check_key_changes()

    def _check_packed(self) -> None:
        is_packed = self._text("payload").lower() == PACKED
        if is_packed and self._text("partitionBy").lower() == KEYHASH:
            self._add(
                "payload = arrow and partitionBy = keyhash exclude each other, because "
                "its rows have many keys; remove partitionBy"
            )

    def _check_key_changes(self) -> None:
        changes = self._text("keyChanges").lower()
        if self._text("partitionBy").lower() == KEYHASH:
            if changes == "keep":
                self._add(
                    "keyChanges = keep and partitionBy = keyhash exclude each other: "
                    "the old and the new key may belong to different tasks; remove one"
                )
        elif changes == "split" and self._text("updates").lower() not in (
            "",
            "postimage",
        ):
            self._add(
                f"keyChanges = split requires updates = postimage, not "
                f"{self._text('updates')}, which contains the old key anyway"
            )

    def _add(self, problem: str) -> None:
        self.problems.append(problem)

    def _has(self, name: str) -> bool:
        return bool(self._text(name))

    def _text(self, name: str) -> str:
        return self._given.get(name.lower(), "").strip()


# --------------------------------------------------------------------------------
# Values
# --------------------------------------------------------------------------------


def _servers(text: str) -> tuple[Address, ...]:
    servers = tuple(_address(part.strip()) for part in text.split(",") if part.strip())
    if not servers:
        raise ValueError("write host:port, separated by commas")
    return servers


def _address(text: str) -> Address:
    found = re.fullmatch(r"(?:\[([^\]]+)\]|([^:\[\]]+))(?::(\d{1,5}))?", text)
    if found is None:
        raise ValueError(f"{text} is not an address; write host:port, or [host]:port")
    port = int(found[3] or DEFAULT_PORT)
    if not 1 <= port <= PORT_MAX:
        raise ValueError(f"port {port} is out of range; write 1 to {PORT_MAX}")
    return Address(found[1] or found[2], port)


def _names(text: str) -> tuple[str, ...]:
    names = tuple(part.strip() for part in text.split(","))
    if not all(names):
        raise ValueError("write names separated by commas, without empty ones")
    if len(set(names)) < len(names):
        raise ValueError("a name is given twice; remove one")
    return names


def _subscription(text: str) -> str:
    if not SUBSCRIPTION.fullmatch(text) or text in (".", ".."):
        raise ValueError("use 1 to 100 characters of A-Z a-z 0-9 _ . -")
    return text


def _table(text: str) -> TableName:
    schema, dot, table = text.partition(".")
    if not (schema and dot and table):
        raise ValueError("write schema.table")
    if "," in text:
        raise ValueError("only one table is possible; read several in generic mode")
    return TableName(schema, table)


def _position(text: str) -> str:
    if not POSITIONS.fullmatch(text):
        raise ValueError(f"write {POSITION_FORMS}")
    kind, _, rest = text.partition(":")
    if kind != "time" or rest.isdecimal():
        return text
    try:
        moment = datetime.fromisoformat(rest)
    except ValueError:
        raise ValueError(
            "write time: and milliseconds since 1970, or a time as "
            "2026-01-31T12:00:00+01:00"
        ) from None
    if moment.tzinfo is None:
        raise ValueError(f"a time without a zone; write it like time:{rest}+00:00")
    return f"time:{round(moment.timestamp() * 1000)}"


def _order_of(text: str) -> tuple[str, int, int] | None:
    """Return a sort key for texts of one kind; None if the text has no order."""
    try:
        kind, _, rest = _position(text).partition(":")
    except ValueError:
        return None  # reported already
    if kind == "time":
        return kind, int(rest), 0
    if kind == "file":
        file, _, offset = rest.rpartition(":")
        return kind, binlog_file_number(file), int(offset)
    ends = {"earliest": 0, "latest": 1}
    return ("end", ends[kind], 0) if kind in ends else None


def _truth(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("write true or false")
    return text.lower() == "true"


def _text(text: str) -> str:
    return text


def _one_of(*words: str) -> Callable[[str], str]:
    by_lower = {word.lower(): word for word in words}

    def read(text: str) -> str:
        if text.lower() not in by_lower:
            raise ValueError(f"write {', '.join(words[:-1])} or {words[-1]}")
        return by_lower[text.lower()]

    return read


def _whole(least: int, most: int = WHOLE_MAX) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not re.fullmatch(r"\d{1,19}", text, re.ASCII):
            raise ValueError(f"write a whole number of at least {least}")
        if not least <= int(text) <= most:
            raise ValueError(f"out of range; write {least} to {most}")
        return int(text)

    return read


def quoted(name: str) -> str:
    """Return an expression that matches exactly this name."""
    return re.sub(r"([^\w])", r"\\\1", name)


# --------------------------------------------------------------------------------
# The options
# --------------------------------------------------------------------------------


class Option(NamedTuple):
    """An option: its name, the field of its value, and its parser."""

    name: str
    field: str
    read: Callable[[str], object]


OPTIONS: Final = (
    Option("servers", "servers", _servers),
    Option("destination", "destinations", _names),
    Option("subscription", "subscription", _subscription),
    Option("username", "username", _text),
    Option("password", "password", _text),
    Option("tls", "tls", _truth),
    Option("tlsCaFile", "tls_ca_file", _text),
    Option("tlsCertFile", "tls_cert_file", _text),
    Option("tlsKeyFile", "tls_key_file", _text),
    Option("filter", "filter", _text),
    Option("table", "table", _table),
    Option("columns", "columns", _names),
    Option("payload", "payload", _one_of("map", "json", PACKED)),
    Option("updates", "updates", _one_of("postimage", "both", "envelope")),
    Option("keyChanges", "key_changes", _one_of("split", "keep")),
    Option("zeroDates", "zero_dates", _one_of("null", "fail")),
    Option("timeZone", "time_zone", _text),
    Option("schemaChange", "schema_change", _one_of("fail", "ignore")),
    Option("truncates", "truncates", _one_of("fail", "ignore")),
    Option("startingPosition", "starting_position", _position),
    Option("endingPosition", "ending_position", _position),
    Option("failOnDataLoss", "fail_on_data_loss", _truth),
    Option("ackOn", "ack_on", _one_of("latestOffset", "commit", "never")),
    Option("wire", "wire", _one_of("binlog", "entry")),
    Option("maxRowsPerTrigger", "max_rows_per_trigger", _whole(0)),
    Option("maxBytesPerTrigger", "max_bytes_per_trigger", _whole(0)),
    Option("partitionBy", "partition_by", _one_of(RANGE, DESTINATION, KEYHASH)),
    Option("minPartitionRows", "min_partition_rows", _whole(1)),
    Option("maxPartitions", "max_partitions", _whole(1, 1024)),
    Option("pollTimeoutMs", "poll_timeout_ms", _whole(0, 60_000)),
    Option("requestTimeoutMs", "request_timeout_ms", _whole(100, 3_600_000)),
    Option("retryTimeoutMs", "retry_timeout_ms", _whole(0, 86_400_000)),
)

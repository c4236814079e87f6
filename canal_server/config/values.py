"""Turns the text of a setting into its value.

Each function takes a trimmed text that is not blank and raises ValueError with
what is wrong and the remedy. Leaves out where texts come from.
"""

from __future__ import annotations

import codecs
import ipaddress
import re
from pathlib import Path
from typing import TYPE_CHECKING

from canal_server.config.schema import (
    Action,
    BatchMode,
    HostPort,
    NamedEvent,
    SslMode,
)
from canal_server.filters.table_filters import compile_expression

if TYPE_CHECKING:
    from collections.abc import Callable

MYSQL_PORT = 3306
PORT_MAX = 65_535
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
SHA1_HEX_DIGITS = 40

_HOST = r"[\w.-]+"
_ZOOKEEPER = r"\s*(?:\[[0-9A-Fa-f:.]+\]|[^\s:\[\],]+)(?::[0-9]{1,5})?\s*"
_ZOOKEEPERS = f"{_ZOOKEEPER}(?:,{_ZOOKEEPER})*"

TRUE = frozenset({"true", "on", "yes", "y", "t", "1"})
FALSE = frozenset({"false", "off", "no", "n", "f", "0"})

# Names that Java knows and Python does not; and MySQL's own.
CHARSETS = {
    "utf8mb4": "utf-8",
    "unicode": "utf-16",
    "x-utf-16le-bom": "utf-16-le",
    "utf8mb3": "utf-8",
    "windows-31j": "cp932",
    "x-windows-949": "cp949",
    "x-windows-950": "cp950",
    "x-johab": "johab",
}


def text(value: str) -> str:
    """Return the text as it is."""
    return value


def tables(value: str) -> str:
    """Return a list of tables as it is, if it can be used as a filter."""
    compile_expression(value)
    return value


def boolean(value: str) -> bool:
    """Read a switch, in any case."""
    word = value.lower()
    if word in TRUE:
        return True
    if word in FALSE:
        return False
    raise ValueError("not a switch; write true or false")


def opposite(value: str) -> bool:
    """Read a switch whose key says the contrary of our field."""
    return not boolean(value)


def integer(least: int, most: int, unit: str = "") -> Callable[[str], int]:
    """Make a reader of whole numbers from `least` to `most`."""
    what = f" {unit}" if unit else ""

    def read(value: str) -> int:
        # int() would also take blanks, underscores and digits of other scripts.
        if not re.fullmatch(r"[+-]?[0-9]{1,30}", value):
            raise ValueError(
                f"not a whole number{' of' + what if what else ''};"
                f" write one from {least} to {most}"
            )
        number = int(value)
        if not least <= number <= most:
            raise ValueError(f"out of range; write {least} to {most}{what}")
        return number

    return read


def seconds(least: int, most: int) -> Callable[[str], float]:
    """Make a reader of whole seconds."""
    read_integer = integer(least, most, "seconds")
    return lambda value: float(read_integer(value))


_NAMED_EVENT = re.compile(r"(?P<file>[^\s:=,/]+):(?P<at>[0-9]{1,19})=(?P<how>\w+)")


def named_events(value: str) -> tuple[NamedEvent, ...]:
    """Read `file:position=skip|raw`, several with commas."""
    found: dict[tuple[str, int], NamedEvent] = {}
    for item in (part.strip() for part in value.split(",")):
        parts = _NAMED_EVENT.fullmatch(item)
        if parts is None or parts["how"] not in set(Action):
            raise ValueError(
                f"{item!r} names no event; write file:position=skip or =raw, as"
                " binlog.000003:4711=skip"
            )
        event = NamedEvent(parts["file"], int(parts["at"]), Action(parts["how"]))
        if (event.file, event.position) in found:
            raise ValueError(f"{event.file}:{event.position} is named twice")
        found[event.file, event.position] = event
    return tuple(found.values())


def power_of_two(most: int) -> Callable[[str], int]:
    """Make a reader of powers of two from 2 to `most`."""
    read_integer = integer(2, most)

    def read(value: str) -> int:
        number = read_integer(value)
        if number & (number - 1):
            below = 1 << (number.bit_length() - 1)
            nearest = f"{below} or {below * 2}" if below * 2 <= most else f"{below}"
            raise ValueError(f"not a power of two; write {nearest}")
        return number

    return read


def address(value: str) -> HostPort:
    """Read `host:port`; `[::1]:3306` for IPv6; the port may be left out."""
    if re.search("[,;]", value):
        raise ValueError("names several servers; write one host:port")
    found = re.fullmatch(
        rf"(?:\[(?P<ipv6>[^\[\]/]+)\]|(?P<host>{_HOST}))(?::(?P<port>\d+))?",
        value,
        re.ASCII,
    )
    if not found:
        raise ValueError(
            "not an address; write host:port, or [::1]:port with an IPv6 address"
        )
    port = int(found["port"][:6]) if found["port"] else MYSQL_PORT
    if not 1 <= port <= PORT_MAX:
        raise ValueError(f"the port is out of range; write 1 to {PORT_MAX}")
    if found["ipv6"]:
        try:
            ipaddress.IPv6Address(found["ipv6"])
        except ValueError:
            raise ValueError("not an IPv6 address; write [::1]:port") from None
    return HostPort(found["ipv6"] or found["host"], port)


def host(value: str) -> str:
    """Read the name or IP of one host, without a port."""
    if re.fullmatch(_HOST, value, re.ASCII):
        return value
    try:
        ipaddress.ip_address(value)
    except ValueError:
        raise ValueError("not a host; write one name or IP, without a port") from None
    return value


def zookeeper_servers(value: str) -> str:
    """Read `host:port,host:port/chroot`, several with semicolons between them.

    They become one list: all must be of one ensemble.
    """
    servers: list[str] = []
    chroots: set[str] = set()
    for group in value.split(";"):
        hosts, slash, chroot = group.strip().partition("/")
        if not re.fullmatch(_ZOOKEEPERS, hosts, re.ASCII):
            raise ValueError("not a list of servers; write host:2181,host:2181")
        if not re.fullmatch(r"([^\s/]+(/[^\s/]+)*)?", chroot):
            raise ValueError(f"/{chroot} is not the path of a node")
        servers += [host.strip() for host in hosts.split(",")]
        chroots.add(slash + chroot if chroot else "")
    if len(chroots) > 1:
        raise ValueError("its lists end in different paths; write the same behind each")
    return ",".join(servers) + chroots.pop()


def names(*known: str) -> Callable[[str], tuple[str, ...]]:
    """Make a reader of lists of known words, separated by commas."""

    def read(value: str) -> tuple[str, ...]:
        words = [word.strip().upper() for word in value.split(",")]
        for word in words:
            if word and word not in known:
                raise ValueError(f"{word} is not known; choose from {', '.join(known)}")
        return tuple(word for word in words if word)

    return read


def batch_mode(value: str) -> BatchMode:
    """Read MEMSIZE or ITEMSIZE."""
    try:
        return BatchMode(value.upper())
    except ValueError:
        raise ValueError("not a batch mode; write MEMSIZE or ITEMSIZE") from None


def ssl_mode(value: str) -> SslMode:
    """Read a mode of TLS."""
    try:
        return SslMode(value.upper())
    except ValueError:
        raise ValueError(
            f"not an SSL mode; write one of {', '.join(SslMode)}"
        ) from None


def charset(value: str) -> str:
    """Read the name of a character set as Java, MySQL or Python writes it."""
    name = CHARSETS.get(value.lower(), value)
    try:
        codec = codecs.lookup(name)
        "".encode(codec.name)  # raises for codecs that are not of text
    except (LookupError, ValueError):
        raise ValueError("not a known character set; write UTF-8") from None
    return codec.name


def folder(value: str) -> Path:
    """Read a path; whoever loads it makes it absolute."""
    if "\0" in value:
        raise ValueError("not a path; take the zero character out")
    return Path(value)


def password_hash(value: str) -> str:
    """Read hex(SHA1(SHA1(password))), with or without MySQL's leading `*`."""
    digits = value.removeprefix("*").lower()
    if not re.fullmatch(rf"[0-9a-f]{{{SHA1_HEX_DIGITS}}}", digits):
        raise ValueError(
            f"not {SHA1_HEX_DIGITS} hexadecimal digits; write SHA1(SHA1(password)),"
            " which docs/howto/security.md tells how to make"
        )
    return digits

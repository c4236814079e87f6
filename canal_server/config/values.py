"""Parses the text of a setting.

Each function takes a trimmed text that is not blank and raises ValueError with the
problem and the remedy. Where texts come from is left to `substitution`.
"""

from __future__ import annotations

import codecs
import ipaddress
import re
import shlex
import urllib.parse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from canal_server.config.schema import (
    Action,
    BatchMode,
    ClientCertificates,
    Decimals,
    HostPort,
    MessageKeys,
    MessageLayout,
    NamedEvent,
    SslMode,
    SubjectNames,
)
from canal_server.doors.web_service import WebTarget
from canal_server.filters.table_filters import compile_expression

if TYPE_CHECKING:
    from collections.abc import Callable

T_co = TypeVar("T_co", covariant=True)

MYSQL_PORT = 3306
PORT_MAX = 65_535
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
SHA1_HEX_DIGITS = 40
TLS_VERSIONS = ("TLSv1.2", "TLSv1.3")
OLD_TLS_VERSIONS = ("sslv2hello", "sslv3", "tlsv1", "tlsv1.1")
STORE_TYPES = ("PKCS12", "JKS")

_HOST = r"[\w.-]+"
_ZOOKEEPER = r"\s*(?:\[[0-9A-Fa-f:.]+\]|[^\s:\[\],]+)(?::[0-9]{1,5})?\s*"
_ZOOKEEPERS = f"{_ZOOKEEPER}(?:,{_ZOOKEEPER})*"

MAXWELL = (
    "binlog_position", "gtid_position", "server_id", "primary_keys",
    "primary_key_columns", "ddl",
)  # fmt: skip

TRUE = frozenset({"true", "on", "yes", "y", "t", "1"})
FALSE = frozenset({"false", "off", "no", "n", "f", "0"})

# Names that Java knows and Python does not, and the names of MySQL.
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


@dataclass(frozen=True, slots=True)
class Reader(Generic[T_co]):
    """Parses a text; `kind` describes the texts that it accepts."""

    kind: str  # Markdown, for the reference documentation
    read: Callable[[str], T_co]

    def __call__(self, value: str) -> T_co:
        """Return the value. Raises ValueError."""
        return self.read(value)


def reader(kind: str) -> Callable[[Callable[[str], T_co]], Reader[T_co]]:
    """Make a decorator that turns a function into a Reader of this kind."""

    def made(read: Callable[[str], T_co]) -> Reader[T_co]:
        return Reader(kind, read)

    return made


@reader("text")
def text(value: str) -> str:
    """Return the text as it is."""
    return value


@reader("`key=value`, separated by commas, or by semicolons if values have commas")
def pairs(value: str) -> tuple[tuple[str, str], ...]:
    """Parse pairs of a key and a value."""
    found = []
    separator = ";" if ";" in value else ","
    for item in filter(None, map(str.strip, value.split(separator))):
        key, equals, text_ = item.partition("=")
        if not (key.strip() and equals):
            raise ValueError(f"{item} has no value; write key=value")
        found.append((key.strip(), text_.strip()))
    return tuple(found)


@reader("regular expressions, separated by commas")
def tables(value: str) -> str:
    """Return a list of tables unchanged, if it is a valid filter."""
    compile_expression(value)
    return value


@reader("`true` or `false`")
def boolean(value: str) -> bool:
    """Parse a switch, in upper or lower case."""
    word = value.lower()
    if word in TRUE:
        return True
    if word in FALSE:
        return False
    raise ValueError("not a switch; write true or false")


@reader("`true` or `false`")
def opposite(value: str) -> bool:
    """Parse a switch whose key has the opposite meaning of our field."""
    return not boolean(value)


def integer(least: int, most: int, unit: str = "") -> Reader[int]:
    """Make a reader of whole numbers from `least` to `most`."""
    what = f" {unit}" if unit else ""
    limits = f"{least} or more" if most >= INT32_MAX else f"{least} to {most}"

    @reader(f"whole number{' of' + what if what else ''}, {limits}")
    def read(value: str) -> int:
        # int() would also accept blanks, underscores and digits of other scripts.
        if not re.fullmatch(r"[+-]?[0-9]{1,30}", value):
            raise ValueError(
                f"not a whole number{' of' + what if what else ''};"
                f" write a number from {least} to {most}"
            )
        number = int(value)
        if not least <= number <= most:
            raise ValueError(f"out of range; write {least} to {most}{what}")
        return number

    return read


@reader("whole number, 1 to 1000, or -1")
def replicas(value: str) -> int:
    """Read how many replicas a topic has; -1: as the brokers decide."""
    number = integer(-1, 1000)(value)
    if number == 0:
        raise ValueError("a topic has 1 replica or more; -1 is the brokers' default")
    return number


def seconds(least: int, most: int) -> Reader[float]:
    """Make a reader of whole seconds."""
    read_integer = integer(least, most, "seconds")
    return Reader(read_integer.kind, lambda value: float(read_integer(value)))


_NAMED_EVENT = re.compile(r"(?P<file>[^\s:=,/]+):(?P<at>[0-9]{1,19})=(?P<how>\w+)")


@reader("`file:position=skip` or `=raw`, separated by commas")
def named_events(value: str) -> tuple[NamedEvent, ...]:
    """Parse `file:position=skip|raw`, separated by commas."""
    found: dict[tuple[str, int], NamedEvent] = {}
    for item in (part.strip() for part in value.split(",")):
        parts = _NAMED_EVENT.fullmatch(item)
        if parts is None or parts["how"] not in set(Action):
            raise ValueError(
                f"{item!r} is not an event; write file:position=skip or =raw, such as"
                " binlog.000003:4711=skip"
            )
        event = NamedEvent(parts["file"], int(parts["at"]), Action(parts["how"]))
        if (event.file, event.position) in found:
            raise ValueError(
                f"{event.file}:{event.position} is given twice; remove one"
            )
        found[event.file, event.position] = event
    return tuple(found.values())


def power_of_two(most: int) -> Reader[int]:
    """Make a reader of powers of two from 2 to `most`."""
    read_integer = integer(2, most)

    @reader(f"power of two, 2 to {most}")
    def read(value: str) -> int:
        number = read_integer(value)
        if number & (number - 1):
            below = 1 << (number.bit_length() - 1)
            nearest = f"{below} or {below * 2}" if below * 2 <= most else f"{below}"
            raise ValueError(f"not a power of two; write {nearest}")
        return number

    return read


@reader("`host:port`")
def address(value: str) -> HostPort:
    """Parse `host:port`; `[::1]:3306` for IPv6; the port may be omitted."""
    if re.search("[,;]", value):
        raise ValueError("contains several servers; write one host:port")
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
        raise ValueError(f"port out of range; write 1 to {PORT_MAX}")
    if found["ipv6"]:
        try:
            ipaddress.IPv6Address(found["ipv6"])
        except ValueError:
            raise ValueError("not an IPv6 address; write [::1]:port") from None
    return HostPort(found["ipv6"] or found["host"], port)


@reader("host name or IP address")
def host(value: str) -> str:
    """Parse the name or IP address of one host, without a port."""
    if re.fullmatch(_HOST, value, re.ASCII):
        return value
    try:
        ipaddress.ip_address(value)
    except ValueError:
        raise ValueError(
            "not a host; write one name or IP address, without a port"
        ) from None
    return value


@reader("`host:port,host:port/path`")
def zookeeper_servers(value: str) -> str:
    """Parse `host:port,host:port/chroot`, or several of these, separated by semicolons.

    The result is one list: all servers must belong to one ensemble.
    """
    servers: list[str] = []
    chroots: set[str] = set()
    for group in value.split(";"):
        hosts, slash, chroot = group.strip().partition("/")
        if not re.fullmatch(_ZOOKEEPERS, hosts, re.ASCII):
            raise ValueError("not a list of servers; write host:2181,host:2181")
        if not re.fullmatch(r"([^\s/]+(/[^\s/]+)*)?", chroot):
            raise ValueError(f"/{chroot} is not a node path; write it like /canal")
        servers += [host.strip() for host in hosts.split(",")]
        chroots.add(slash + chroot if chroot else "")
    if len(chroots) > 1:
        raise ValueError(
            "its lists end with different paths; write the same path after each list"
        )
    return ",".join(servers) + chroots.pop()


def names(*known: str) -> Reader[tuple[str, ...]]:
    """Make a reader of lists of known words, separated by commas."""

    @reader(f"any of {', '.join(f'`{each}`' for each in known)}, separated by commas")
    def read(value: str) -> tuple[str, ...]:
        words = [word.strip().upper() for word in value.split(",")]
        for word in words:
            if word and word not in known:
                raise ValueError(f"{word} is unknown; choose from {', '.join(known)}")
        return tuple(word for word in words if word)

    return read


@reader("`MEMSIZE` or `ITEMSIZE`")
def batch_mode(value: str) -> BatchMode:
    """Parse MEMSIZE or ITEMSIZE."""
    try:
        return BatchMode(value.upper())
    except ValueError:
        raise ValueError("not a batch mode; write MEMSIZE or ITEMSIZE") from None


@reader(", ".join(f"`{each}`" for each in MessageLayout))
def message_layout(value: str) -> MessageLayout:
    """Parse how messages of JSON look."""
    try:
        return MessageLayout(value.lower())
    except ValueError:
        raise ValueError(
            f"unknown form of messages; write one of {', '.join(MessageLayout)}"
        ) from None


@reader(", ".join(f"`{each}`" for each in Decimals))
def decimals(value: str) -> Decimals:
    """Parse how messages of Debezium have a DECIMAL."""
    try:
        return Decimals(value.lower())
    except ValueError:
        raise ValueError(
            f"unknown mode of decimals; write one of {', '.join(Decimals)}"
        ) from None


@reader("words, separated by commas: " + ", ".join(f"`{each}`" for each in MAXWELL))
def maxwell_output(value: str) -> frozenset[str]:
    """Parse what messages of Maxwell have in addition."""
    words = frozenset(each.strip().lower() for each in value.split(",") if each.strip())
    for each in sorted(words - set(MAXWELL)):
        raise ValueError(
            f"{each} is unknown; write words out of {', '.join(MAXWELL)}, separated by"
            " commas"
        )
    return words


@reader(", ".join(f"`{each}`" for each in SubjectNames))
def subject_names(value: str) -> SubjectNames:
    """Parse under which name the registry keeps a schema."""
    # Confluent's converters have the name of a class, whose last part it is.
    word = value.rpartition(".")[2].lower()
    for each in SubjectNames:
        if word == each.lower():
            return each
    raise ValueError(f"unknown strategy; write one of {', '.join(SubjectNames)}")


@reader("URLs, separated by commas")
def web_urls(value: str) -> tuple[str, ...]:
    """Parse the addresses of a web service that needs a login apart from them."""
    found = tuple(each.strip().rstrip("/") for each in value.split(",") if each.strip())
    for each in found:
        if re.search("[@?#]", each):
            raise ValueError(
                "contains more than addresses; write http://host:port/path, and the"
                " login in the keys for user and password"
            )
        WebTarget(each)
    return found


@reader("`none` or `primaryKey`")
def message_keys(value: str) -> MessageKeys:
    """Parse what messages have as their keys."""
    for each in MessageKeys:
        if value.lower() == each.lower():
            return each
    raise ValueError("not a kind of message keys; write none or primaryKey")


@reader(", ".join(f"`{mode}`" for mode in SslMode))
def ssl_mode(value: str) -> SslMode:
    """Parse a TLS mode."""
    try:
        return SslMode(value.upper())
    except ValueError:
        raise ValueError(
            f"not an SSL mode; write one of {', '.join(SslMode)}"
        ) from None


@reader(", ".join(f"`{each}`" for each in ClientCertificates))
def client_certificates(value: str) -> ClientCertificates:
    """Parse whether clients must show a certificate."""
    try:
        return ClientCertificates(value.lower())
    except ValueError:
        raise ValueError(
            f"unknown; write one of {', '.join(ClientCertificates)}"
        ) from None


@reader("name of a character set")
def charset(value: str) -> str:
    """Parse the name of a character set in the spelling of Java, MySQL or Python."""
    name = CHARSETS.get(value.lower(), value)
    try:
        codec = codecs.lookup(name)
        "".encode(codec.name)  # raises for codecs that do not encode text
    except (LookupError, ValueError):
        raise ValueError("unknown character set; write UTF-8") from None
    return codec.name


@reader("path")
def folder(value: str) -> Path:
    """Parse a path; the caller makes it absolute."""
    if "\0" in value:
        raise ValueError("not a path; remove the NUL character")
    return Path(value)


@reader("path or `file:` URL")
def file_url(value: str) -> Path:
    """Parse a path, or a URL of a file as Java writes it."""
    if re.match(r"file:", value, re.IGNORECASE):
        parts = urllib.parse.urlsplit(value)
        if parts.netloc not in ("", "localhost") or not parts.path:
            raise ValueError("a URL of another host; write file:/path")
        return folder(urllib.parse.unquote(parts.path))
    if re.match(r"[A-Za-z][\w+.-]+:", value):
        raise ValueError("not the URL of a file; write a path, or file:/path")
    return folder(value)


@reader("`PKCS12` or `JKS`")
def store_type(value: str) -> str:
    """Parse the format of a key store."""
    if value.upper() not in STORE_TYPES:
        raise ValueError(
            "key stores of this format cannot be read; convert it to PKCS12 with"
            " keytool -importkeystore"
        )
    return value.upper()


@reader("`TLSv1.2`, `TLSv1.3`, separated by commas")
def tls_versions(value: str) -> tuple[str, ...]:
    """Parse the names of versions of TLS; those that are not safe are left out."""
    found = []
    for word in (part.strip() for part in value.split(",")):
        name = next((each for each in TLS_VERSIONS if each.lower() == word.lower()), "")
        if name:
            found.append(name)
        elif word.lower() not in OLD_TLS_VERSIONS:
            raise ValueError(
                f"{word or 'an empty name'} is not a version of TLS; write"
                f" {','.join(TLS_VERSIONS)}"
            )
    if not found:
        raise ValueError(
            "contains only versions that are not safe; write TLSv1.2,TLSv1.3"
        )
    return tuple(found)


@reader("URL")
def web_url(value: str) -> str:
    """Parse http:// or https:// with a host."""
    WebTarget(value)
    return value


@reader("`host:port` or URL")
def manager_address(value: str) -> str:
    """Parse the address of a canal-admin, a URL or `host:port`; returns a URL."""
    url = value if "://" in value else f"http://{value}"
    if re.search("[@?#]", url):
        raise ValueError(
            "contains more than an address; write host:port or http://host:port/path,"
            " and the login in canal.admin.user and canal.admin.passwd"
        )
    WebTarget(url)
    return url.rstrip("/")


@reader("command line")
def command(value: str) -> str:
    """Parse a command with arguments, quoted as for a shell."""
    try:
        shlex.split(value)
    except ValueError as error:
        raise ValueError(f"not a command line: {error}") from error
    return value


@reader("40 hexadecimal digits")
def password_hash(value: str) -> str:
    """Parse hex(SHA1(SHA1(password))), with or without MySQL's leading `*`."""
    digits = value.removeprefix("*").lower()
    if not re.fullmatch(rf"[0-9a-f]{{{SHA1_HEX_DIGITS}}}", digits):
        raise ValueError(
            f"not {SHA1_HEX_DIGITS} hexadecimal digits; write SHA1(SHA1(password)),"
            " as described in docs/howto/security.md"
        )
    return digits

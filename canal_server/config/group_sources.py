"""Reads the sources of a group: canal.instance.master1.address, master2 and so on.

Other settings of the source of an instance (account, timeouts, …) apply to each of
them. Whether a destination is a group is decided in `modes`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from canal_server.config.key_reading import read_all
from canal_server.config.keys.source_keys import (
    UNREADABLE_FIELD,
    host_keys,
    unreadable_key,
)
from canal_server.config.problems import find
from canal_server.config.schema import Wiring

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from canal_server.config.keys.setting import Key
    from canal_server.config.problems import Problems
    from canal_server.config.schema import HostPort, SourceConfig
    from canal_server.config.substitution import Lookup

SOURCES_MAX = 64
FIRST_KEY = "canal.instance.master1.address"
SINGLE_KEY = "canal.instance.master.address"
WORDS = ("address", "journal.name", "position", "timestamp", "gtid")
# The keys of the Java server. Other numbers exist only here.
KEYS = tuple(
    f"canal.instance.{host}{number}.{word}"
    for host in ("master", "standby")
    for number in (1, 2)
    for word in WORDS
)

Fields = dict[str, object]  # values by field path


def keys_of(numbers: Iterable[int]) -> Iterator[Key]:
    """Yield the keys of these sources."""
    for number in numbers:
        yield from host_keys("master", number)
        yield unreadable_key(number)
        yield from host_keys("standby", number)


def numbered_sources(
    lookup: Lookup, problems: Problems, conf_dir: Path
) -> dict[int, Fields]:
    """Return the settings of each source that has an address, by its number."""
    found: dict[int, Fields] = {}
    for number in range(1, SOURCES_MAX + 1):
        has_address = {
            host: find(lookup, f"canal.instance.{host}{number}.address", problems)
            for host in ("master", "standby")
        }
        standby = has_address["standby"]
        if has_address["master"] is not None:
            keys = tuple(keys_of((number,)))
            found[number] = {
                **read_all(keys, lookup, problems, conf_dir),
                "source.number": number,
            }
        elif standby is not None:
            problems.add(
                standby.origin,
                f"canal.instance.standby{number}.address",
                standby.text,
                f"a standby without a source; also set"
                f" canal.instance.master{number}.address",
            )
    return found


def wiring(lookup: Lookup, problems: Problems) -> Wiring:
    """Return where the cursors of a group are stored: in ZooKeeper if it is configured.

    The Java server keeps the cursors of a group only in memory.
    """
    named = find(lookup, "canal.zkServers", problems) is not None
    return Wiring.ZOOKEEPER if named else Wiring.FILE


def sources(
    numbered: Mapping[int, Fields],
    common: Fields,
    make: Callable[[Fields], SourceConfig],
) -> tuple[SourceConfig, ...]:
    """Return the sources; `common` are the settings that apply to all of them."""
    shared = {
        field: value
        for field, value in common.items()
        if not field.startswith(("source.master.", "source.standby."))
        and field != UNREADABLE_FIELD
    }
    return tuple(make(shared | numbered[number]) for number in sorted(numbered))


def check(
    group: tuple[SourceConfig, ...], lookup: Lookup, file: str, problems: Problems
) -> None:
    """Report a group without a source, and two sources that are the same server."""
    if not group:
        problems.add(
            file,
            FIRST_KEY,
            "",
            "no source is set for the group; write host:port",
        )
    names: dict[HostPort, str] = {}
    for source in group:
        for host, settings in (("master", source.master), ("standby", source.standby)):
            key = f"canal.instance.{host}{source.number}.address"
            if settings.address is None:
                continue
            other = names.setdefault(settings.address, key)
            if other != key:
                found = find(lookup, key, problems)
                problems.add(
                    found.origin if found else file,
                    key,
                    str(settings.address),
                    f"also the server of {other}; a server may be in a group only once",
                )


def hints(lookup: Lookup, problems: Problems, *, grouped: bool) -> list[str]:
    """Return warnings about addresses that have no effect on this kind of instance."""
    unused = (SINGLE_KEY,) if grouped else KEYS
    why = (
        f"the sources of a group are set by {FIRST_KEY} and so on"
        if grouped
        else "several sources require classpath:spring/group-instance.xml"
    )
    return [
        f"{found.origin}: {key}: no effect: {why}"
        for key in unused
        if (found := find(lookup, key, problems)) is not None
    ]

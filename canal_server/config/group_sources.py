"""Reads the sources of a group: canal.instance.master1.address, master2 and so on.

All else that is set for the source of an instance (account, time-outs, …) holds for
each of them. Leaves out what makes a destination a group (`modes`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from canal_server.config.key_reading import read_all
from canal_server.config.key_tables import UNREADABLE_FIELD, host_keys, unreadable_key
from canal_server.config.problems import find
from canal_server.config.schema import Wiring

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from canal_server.config.problems import Problems
    from canal_server.config.schema import HostPort, SourceConfig
    from canal_server.config.substitution import Lookup

MEMBERS_MAX = 64
FIRST_KEY = "canal.instance.master1.address"
SINGLE_KEY = "canal.instance.master.address"
WORDS = ("address", "journal.name", "position", "timestamp", "gtid")
# Those that the original has. Other numbers are ours.
KEYS = tuple(
    f"canal.instance.{host}{number}.{word}"
    for host in ("master", "standby")
    for number in (1, 2)
    for word in WORDS
)

Fields = dict[str, object]  # values by the path of their field


def members(lookup: Lookup, problems: Problems) -> dict[int, Fields]:
    """Return the settings of each source that has an address, by its number."""
    found: dict[int, Fields] = {}
    for number in range(1, MEMBERS_MAX + 1):
        has_address = {
            host: find(lookup, f"canal.instance.{host}{number}.address", problems)
            for host in ("master", "standby")
        }
        standby = has_address["standby"]
        if has_address["master"] is not None:
            keys = (
                *host_keys("master", number),
                unreadable_key(number),
                *host_keys("standby", number),
            )
            found[number] = {
                **read_all(keys, lookup, problems),
                "source.member": number,
            }
        elif standby is not None:
            problems.add(
                standby.origin,
                f"canal.instance.standby{number}.address",
                standby.text,
                f"the standby of no source; set canal.instance.master{number}.address"
                " too",
            )
    return found


def wiring(lookup: Lookup, problems: Problems) -> Wiring:
    """Return where a group's cursors are: in ZooKeeper where one is named.

    In the original nothing of a group outlives the process.
    """
    named = find(lookup, "canal.zkServers", problems) is not None
    return Wiring.ZOOKEEPER if named else Wiring.FILE


def sources(
    members: Mapping[int, Fields],
    common: Fields,
    make: Callable[[Fields], SourceConfig],
) -> tuple[SourceConfig, ...]:
    """Return the sources: `common` holds what is set for all of them."""
    shared = {
        field: value
        for field, value in common.items()
        if not field.startswith(("source.master.", "source.standby."))
        and field != UNREADABLE_FIELD
    }
    return tuple(make(shared | members[number]) for number in sorted(members))


def check(
    group: tuple[SourceConfig, ...], lookup: Lookup, file: str, problems: Problems
) -> None:
    """Note that there is no source, or that two are one server."""
    if not group:
        problems.add(
            file,
            FIRST_KEY,
            "",
            "no MySQL server is named for the group; write host:port",
        )
    names: dict[HostPort, str] = {}
    for source in group:
        for host, settings in (("master", source.master), ("standby", source.standby)):
            key = f"canal.instance.{host}{source.member}.address"
            if settings.address is None:
                continue
            other = names.setdefault(settings.address, key)
            if other != key:
                found = find(lookup, key, problems)
                problems.add(
                    found.origin if found else file,
                    key,
                    str(settings.address),
                    f"the server of {other} too; each may be in a group once",
                )


def hints(lookup: Lookup, problems: Problems, *, grouped: bool) -> list[str]:
    """Return warnings of addresses that count for nothing, as the kind is another."""
    unused = (SINGLE_KEY,) if grouped else KEYS
    why = (
        f"the sources of a group are {FIRST_KEY} and on"
        if grouped
        else "several sources need classpath:spring/group-instance.xml"
    )
    return [
        f"{found.origin}: {key}: without effect: {why}"
        for key in unused
        if (found := find(lookup, key, problems)) is not None
    ]

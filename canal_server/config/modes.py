"""The settings that decide what runs, and errors for modes that do not exist here.

Plain values are in `canal_server.config.key_tables`.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from typing import TYPE_CHECKING

from canal_server.config import values
from canal_server.config.keys.mode_keys import SCAN_INTERVAL_S
from canal_server.config.problems import find
from canal_server.config.schema import Wiring

if TYPE_CHECKING:
    from pathlib import Path

    from canal_server.config.problems import Problems
    from canal_server.config.substitution import Found, Lookup

DESTINATIONS_MAX = 10_000
DESTINATION_CHARACTERS_MAX = 100
SCAN_INTERVAL_S_MAX = 86_400
INSTANCE_FILE = "instance.properties"

# The component sets, which the Java server selects by a Spring file.
WIRINGS = {
    "memory-instance.xml": Wiring.MEMORY,
    "file-instance.xml": Wiring.FILE,
    "default-instance.xml": Wiring.ZOOKEEPER,
}
MODE_KEY = "canal.instance.global.mode"
SPRING = "spring"  # settings of instances are in files of the conf folder
MANAGER = "manager"  # canal-admin hands them out

GROUP_FILE = "group-instance.xml"
WIRING_REMEDY = "write classpath:spring/file-instance.xml"

_NO_FILE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)  # ELOOP: links in a circle

EXPRESSION = re.compile(r"(?P<prefix>.*)\{(?P<first>\d{1,9})-(?P<last>\d{1,9})\}")


def refuse_server_modes(lookup: Lookup, problems: Problems) -> None:
    """Report unsupported modes of the whole server."""
    managed = find(lookup, MODE_KEY, problems)
    if managed and managed.text.lower() == MANAGER and not is_managed(lookup, problems):
        _refuse(
            problems,
            MODE_KEY,
            managed,
            "canal.admin.manager is not set; set the address of canal-admin in the"
            " canal.properties of the conf folder, or write spring",
        )


def is_managed(lookup: Lookup, problems: Problems) -> bool:
    """Return whether the settings of instances come from canal-admin."""
    mode = find(lookup, MODE_KEY, problems)
    address = find(lookup, "canal.admin.manager", problems)
    return mode is not None and mode.text.lower() == MANAGER and address is not None


def refuse_instance_modes(lookup: Lookup, destination: str, problems: Problems) -> None:
    """Report unsupported modes of one instance."""
    key, mode = _of_destination(lookup, destination, "mode", problems)
    common = find(lookup, MODE_KEY, problems)
    if mode and mode.text.lower() not in (SPRING, MANAGER):
        _refuse(problems, key, mode, "unsupported mode; write spring or manager")
    elif mode and key != MODE_KEY:
        expected = common.text.lower() if common else SPRING
        if mode.text.lower() != expected:
            _refuse(
                problems,
                key,
                mode,
                f"all destinations have the same mode; write {expected}, or change"
                f" {MODE_KEY}",
            )


def wiring_of(lookup: Lookup, destination: str, problems: Problems) -> Wiring:
    """Return the component set of a destination."""
    key, found = _of_destination(lookup, destination, "spring.xml", problems)
    if found is None:
        return Wiring.FILE
    wiring = WIRINGS.get(_file_name(found))
    if wiring is None:
        _refuse(problems, key, found, f"unknown component set; {WIRING_REMEDY}")
        return Wiring.FILE
    return wiring


def is_group(lookup: Lookup, destination: str, problems: Problems) -> bool:
    """Return whether a destination merges several sources."""
    _, found = _of_destination(lookup, destination, "spring.xml", problems)
    return found is not None and _file_name(found) == GROUP_FILE


def _file_name(found: Found) -> str:
    return found.text.replace(":", "/").rpartition("/")[2]


def check_zookeeper(
    lookup: Lookup, destination: str, wiring: Wiring, file: str, problems: Problems
) -> None:
    """Report cursors in ZooKeeper without an address of it, and the reverse."""
    key = "canal.zkServers"
    found = find(lookup, key, problems)
    if wiring is Wiring.ZOOKEEPER and found is None:
        problems.add(
            file,
            key,
            "",
            f"no ZooKeeper is set, but {destination} stores its cursors there"
            " (default-instance.xml); write host:2181",
        )
    elif wiring is not Wiring.ZOOKEEPER and found is not None:
        # The Java server would share its destinations then. The server that takes over
        # would start where its own files say, or at the end of the binlog.
        _refuse(
            problems,
            key,
            found,
            f"servers would share {destination}, but not its cursors, so a failover"
            " would lose changes; store the cursors in ZooKeeper with"
            " classpath:spring/default-instance.xml, or leave this empty",
        )


def is_lazy(lookup: Lookup, destination: str, problems: Problems) -> bool:
    """Return whether an instance waits for its first subscription."""
    key, found = _of_destination(lookup, destination, "lazy", problems)
    return _switch(key, found, problems)


def destinations(
    lookup: Lookup, file: str, conf_dir: Path, problems: Problems
) -> list[str]:
    """Return the names of the destinations, configured ones first.

    With canal.auto.scan, folders of `conf_dir` with an instance file are included.
    `file` is the one to report if there is no destination at all.
    """
    usable = listed_destinations(lookup, problems)
    scans = scans_folders(lookup, problems)
    if scans:
        try:
            usable += folders_with_instances(conf_dir)
        except OSError as error:
            problems.add_file(
                str(conf_dir), f"cannot list the folder: {error.strerror}"
            )
    # With a scan of folders, the first destination may appear later.
    key = "canal.destinations"
    listed = any(find(lookup, each, problems) for each in (f"{key}.expr", key))
    if not listed and not usable and not scans:
        problems.add(file, key, "", "no destinations; set at least one")
    return list(dict.fromkeys(usable))


def listed_destinations(lookup: Lookup, problems: Problems) -> list[str]:
    """Return the valid names of `canal.destinations`, or of its expression."""
    key = "canal.destinations.expr"
    found = find(lookup, key, problems)
    if found:
        names = _expanded(found, problems)
    else:
        key = "canal.destinations"
        found = find(lookup, key, problems)
        names = found.text.split(",") if found else []
    names = [name.strip() for name in names if name.strip()]
    usable = [name for name in names if is_destination_name(name)]
    if found and len(usable) < len(names):
        bad = next(name for name in names if not is_destination_name(name))
        _refuse(
            problems,
            key,
            found,
            f"invalid name {bad}; use up to {DESTINATION_CHARACTERS_MAX} characters"
            " without blanks and slashes",
        )
    return usable


def scans_folders(lookup: Lookup, problems: Problems) -> bool:
    """Return whether folders with an instance file are destinations."""
    scan = find(lookup, "canal.auto.scan", problems)
    return _switch("canal.auto.scan", scan, problems)


def scan_interval_s(lookup: Lookup, problems: Problems) -> float:
    """Return the interval between two scans for folders."""
    key = "canal.auto.scan.interval"
    found = find(lookup, key, problems)
    if found is not None:
        try:
            return values.seconds(1, SCAN_INTERVAL_S_MAX)(found.text)
        except ValueError as error:
            _refuse(problems, key, found, str(error))
    return SCAN_INTERVAL_S


def _expanded(found: Found, problems: Problems) -> list[str]:
    """Expand `prefix{1-3}` to prefix1, prefix2, prefix3."""
    match = EXPRESSION.fullmatch(found.text)
    names: list[str] = []
    if match:
        first, last = int(match["first"]), int(match["last"])
        if last - first < DESTINATIONS_MAX:
            names = [f"{match['prefix']}{n}" for n in range(first, last + 1)]
    if not names:
        _refuse(
            problems,
            "canal.destinations.expr",
            found,
            f"expands to fewer than 1 or more than {DESTINATIONS_MAX} names; write it "
            f"like example{{1-3}}",
        )
    return names


def folders_with_instances(conf_dir: Path) -> list[str]:
    """Return the folders that contain an instance file, sorted by name."""
    # Not by pathlib: a thousand folders are looked at every few seconds.
    with os.scandir(conf_dir) as folders:
        return sorted(
            folder.name
            for folder in folders
            if folder.name.lower() != "spring"
            and is_destination_name(folder.name)
            and _is_file(f"{folder.path}/{INSTANCE_FILE}")
        )


def _is_file(path: str) -> bool:
    """Return whether there is a file. Raises OSError if that cannot be seen."""
    try:
        return stat.S_ISREG(os.stat(path).st_mode)  # noqa: PTH116  # see above
    except OSError as error:
        if error.errno in _NO_FILE:
            return False
        raise


def is_destination_name(name: str) -> bool:
    """Return whether a name can be a folder and a field of the protocol."""
    return (
        len(name) <= DESTINATION_CHARACTERS_MAX
        and name not in {".", ".."}
        and not re.search(r"[\s/\\\0]", name)
        and name.isprintable()
    )


def _of_destination(
    lookup: Lookup, destination: str, word: str, problems: Problems
) -> tuple[str, Found | None]:
    """Look up canal.instance.<destination>.<word>, or else the global key."""
    key = f"canal.instance.{destination}.{word}"
    found = find(lookup, key, problems)
    if found is None:
        key = f"canal.instance.global.{word}"
        found = find(lookup, key, problems)
    return key, found


def _switch(key: str, found: Found | None, problems: Problems) -> bool:
    if found is None:
        return False
    try:
        return values.boolean(found.text)
    except ValueError as error:
        _refuse(problems, key, found, str(error))
        return False


def _refuse(problems: Problems, key: str, found: Found, wrong: str) -> None:
    problems.add(found.origin, key, found.text, wrong)

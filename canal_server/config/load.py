"""Reads a conf folder: canal.properties and one instance.properties per destination.

Settings that canal-admin hands out are read from a copy in the data folder, which
`canal_server.admin.managed_settings` keeps; `canal.properties` of the conf folder
overrides the one of canal-admin.

All problems are reported at once. Finding the text of a key is left to `substitution`,
parsing it to `values`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from canal_server.config import group_sources, history_location, modes
from canal_server.config.conf_paths import anchored
from canal_server.config.host_tls import check_host
from canal_server.config.key_reading import fields_of, read_all
from canal_server.config.key_tables import INSTANCE_KEYS, SERVER_KEYS
from canal_server.config.keys.store_keys import DATA_DIR_DEFAULT, DATA_DIR_KEY
from canal_server.config.password_forms import (
    PASSWORD_KEY,
    decrypting,
    exposed_files,
    is_given,
)
from canal_server.config.problems import Problems, find
from canal_server.config.properties import (
    Properties,
    UnreadableError,
    read_properties,
)
from canal_server.config.queue_hints import hash_hints, queue_hints
from canal_server.config.queue_section import BROKER_SECRETS
from canal_server.config.schema import (
    BufferConfig,
    DaemonConfig,
    DetectingConfig,
    EventConfig,
    FilterConfig,
    HostConfig,
    InstanceConfig,
    PositionConfig,
    RoutingConfig,
    ServerConfig,
    SourceConfig,
    StoreConfig,
    TableMetaConfig,
)
from canal_server.config.server_section import read_server
from canal_server.config.substitution import InstanceLookup, Lookup
from canal_server.config.unserved import (
    set_without_effect,
    unknown_warnings,
    unserved_warning,
)
from canal_server.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MAIN_FILE = "canal.properties"
MANAGED_FOLDER = "canal-admin"  # in the data folder
NO_START = "; it does not start"  # ends a warning about a destination of canal-admin
ADMIN_PORT = 11110  # as which a server is known to canal-admin, unless it is set


@dataclass(frozen=True, slots=True)
class ManagedConf:
    """The settings that canal-admin hands out, and the copy of them on the disk."""

    server: ServerConfig  # by the local file alone
    main_file: Path  # as canal-admin handed it out
    instances_dir: Path  # one folder per destination


def load(conf_dir: Path, environ: Mapping[str, str]) -> DaemonConfig:
    """Read and validate all settings below `conf_dir`, overridden by `environ`.

    Raises ConfigError with every problem, and with the warnings. Creates nothing and
    connects to nothing.
    """
    return _Loading(conf_dir, environ).run()


def load_data_dir(conf_dir: Path, environ: Mapping[str, str]) -> Path:
    """Return the data folder of the server of a conf folder, and nothing else.

    This way a running server can be found even if its settings became invalid. Raises
    ConfigError.
    """
    return _Loading(conf_dir, environ).data_dir()


def load_server(conf_dir: Path, environ: Mapping[str, str]) -> ServerConfig:
    """Return the settings of the server itself, without destinations.

    Raises ConfigError.
    """
    return _Loading(conf_dir, environ).server()


def load_managed(conf_dir: Path, environ: Mapping[str, str]) -> ManagedConf | None:
    """Return where the settings from canal-admin are, None: it hands out none.

    Raises ConfigError for local settings that are invalid. Without a canal-admin they
    are left to `load`, which reports those of destinations with them.
    """
    return _Loading(conf_dir, environ).managed()


def listed_destinations(conf_dir: Path, environ: Mapping[str, str]) -> list[str]:
    """Return the destinations that `canal.destinations` lists. Raises ConfigError."""
    return _Loading(conf_dir, environ).listed()


class InstanceLoader:
    """Reads the settings of single destinations later on.

    It keeps the content of `canal.properties` from when it was created.
    """

    def __init__(self, conf_dir: Path, environ: Mapping[str, str]) -> None:
        """Read `canal.properties`. Raises ConfigError."""
        self.conf_dir = conf_dir
        self._environ = dict(environ)
        loading = _Loading(conf_dir, environ)
        self._main = loading.main_files()
        self._instances_dir = loading.instances_dir()
        self._paths: dict[str, Path] = {}  # of files, asked for every few seconds

    def scanned(self) -> list[str]:
        """Return the folders that contain an instance file. Raises OSError.

        Also if `canal.properties` is missing: the folder may be unmounted.
        """
        (self.conf_dir / MAIN_FILE).stat()
        return modes.folders_with_instances(self._instances_dir)

    def path_of(self, destination: str) -> Path:
        """Return the file with the settings of a destination."""
        path = self._paths.get(destination)
        if path is None:
            path = self._instances_dir / destination / modes.INSTANCE_FILE
            self._paths[destination] = path
        return path

    def load(
        self, destination: str, others: Sequence[InstanceConfig]
    ) -> tuple[InstanceConfig, list[str]]:
        """Read and validate the settings of a destination; returns them with warnings.

        Raises ConfigError with every problem, including conflicts with `others`.
        """
        loading = _Loading(self.conf_dir, self._environ, self._main)
        return loading.run_one(destination, others)


class _Loading:
    """One reading of a conf folder; collects problems and warnings."""

    def __init__(
        self,
        conf_dir: Path,
        environ: Mapping[str, str],
        main: Sequence[Properties] = (),
    ) -> None:
        self._conf_dir = conf_dir
        self._environ = environ
        self._main = main  # empty: not read yet
        self._problems = Problems()
        self._files: list[Properties] = []
        self._used: set[str] = set()
        self._without_effect: list[str] = []
        self._hints: list[str] = []

    def run(self) -> DaemonConfig:
        main = self.main_files()
        lookup = Lookup(self._environ, main)
        folder = self.instances_dir()
        modes.refuse_server_modes(lookup, self._problems)
        server = self._server(lookup)
        names = modes.destinations(lookup, main[-1].origin, folder, self._problems)
        scans = modes.scans_folders(lookup, self._problems)
        interval_s = modes.scan_interval_s(lookup, self._problems)
        is_managed = folder != self._conf_dir
        instances = (
            self._valid_instances(names, main, lookup)
            if is_managed and scans
            else [self._instance(name, main, lookup) for name in names]
        )
        data_dir = self._data_dir(main)
        history_location.check_folders(instances, main[-1].origin, self._problems)
        self._hints += history_location.shared_hints(instances, main[-1].origin)
        self._problems.raise_if_any(lambda: self._warnings(names))
        if not names:
            self._hints.append(
                f"{main[-1].origin}: no destinations yet; "
                + (
                    "canal-admin has none for this server"
                    if is_managed
                    else f"a folder with an {modes.INSTANCE_FILE} becomes one"
                )
            )
        return DaemonConfig(
            conf_dir=Path(os.path.abspath(self._conf_dir)),  # noqa: PTH100  # links stay
            data_dir=data_dir,
            server=server,
            instances=tuple(instances),
            scan_interval_s=interval_s if scans else 0.0,
            poll_interval_s=interval_s if server.manager.address else 0.0,
            instances_managed=is_managed,
            warnings=tuple(self._warnings(names)),
        )

    def run_one(
        self, destination: str, others: Sequence[InstanceConfig]
    ) -> tuple[InstanceConfig, list[str]]:
        main = self.main_files()
        config = self._instance(destination, main, Lookup(self._environ, main))
        together = [each for each in others if each.destination != destination]
        if len(together) >= modes.DESTINATIONS_MAX:
            self._problems.add_file(
                str(self._conf_dir / destination),
                f"too many destinations; the limit is {modes.DESTINATIONS_MAX}",
            )
        origin = main[-1].origin
        history_location.check_folders([*together, config], origin, self._problems)
        self._hints += history_location.shared_hints([config], origin)
        self._problems.raise_if_any(lambda: self._warnings([destination]))
        return config, self._warnings([destination])

    def data_dir(self) -> Path:
        found = self._data_dir(self.main_files(needs_managed=False))
        self._problems.raise_if_any()
        return found

    def server(self) -> ServerConfig:
        main = self.main_files(needs_managed=False)
        found = self._server(Lookup(self._environ, main))
        self._problems.raise_if_any()
        return found

    def managed(self) -> ManagedConf | None:
        local = self._local_file()
        lookup = Lookup(self._environ, [local])
        folder = self._managed_folder(local)
        if folder is None:
            return None
        server = self._server(lookup)
        if not server.admin_passwd:
            self._problems.add(
                local.origin,
                "canal.admin.passwd",
                "",
                "not set, but canal-admin sends its settings only to servers that know"
                " its password; set hex(SHA1(SHA1(password))) of its canal.adminPasswd",
            )
        self._problems.raise_if_any()
        if server.admin_port <= 0:
            server = replace(server, admin_port=ADMIN_PORT)
        return ManagedConf(server, folder / MAIN_FILE, folder / "instances")

    def listed(self) -> list[str]:
        main = self.main_files()
        lookup = Lookup(self._environ, main)
        names = modes.listed_destinations(lookup, self._problems)
        self._problems.raise_if_any()
        return names

    def main_files(self, *, needs_managed: bool = True) -> Sequence[Properties]:
        """Return canal.properties, that of the conf folder last, as it counts more."""
        if self._main:
            return self._main
        local = self._local_file()
        self._main = [local]
        folder = self._managed_folder(local)
        if folder is not None:
            path = folder / MAIN_FILE
            managed = self._read(path)
            if managed is not None:
                self._main = [managed, local]
            elif needs_managed:
                self._problems.add_file(
                    str(path),
                    "file not found: nothing was fetched from canal-admin yet; run"
                    " canal-server start",
                )
        self._problems.raise_if_any()
        return self._main

    def instances_dir(self) -> Path:
        """Return the folder with a folder for each destination."""
        main = self.main_files()
        lookup = Lookup(self._environ, main)
        if not modes.is_managed(lookup, self._problems):
            return self._conf_dir
        folder = self._managed_folder(main[-1])
        return self._conf_dir if folder is None else folder / "instances"

    def _managed_folder(self, local: Properties) -> Path | None:
        """Return where settings from canal-admin are stored, None: it is not used."""
        lookup = Lookup(self._environ, [local])
        if find(lookup, "canal.admin.manager", self._problems) is None:
            return None
        return self._data_dir([local]) / MANAGED_FOLDER

    def _local_file(self) -> Properties:
        path = self._conf_dir / MAIN_FILE
        local = self._read(path)
        if local is None:
            self._problems.add_file(
                str(path), "file not found; set the conf folder with --conf"
            )
        self._problems.raise_if_any()
        assert local is not None, "otherwise a problem was raised"
        return local

    def _valid_instances(
        self, names: Sequence[str], main: Sequence[Properties], lookup: Lookup
    ) -> list[InstanceConfig]:
        """Return the settings of those that can be used, with a warning for the others.

        One whose settings are repaired in canal-admin starts then.
        """
        valid: list[InstanceConfig] = []
        common = self._problems
        for name in names:
            self._problems = Problems()
            try:
                config = self._instance(name, main, lookup)
                self._problems.raise_if_any()
            except ConfigError as error:
                self._hints += [f"{each}{NO_START}" for each in error.problems]
            else:
                valid.append(config)
        self._problems = common
        return valid

    def _read(self, path: Path) -> Properties | None:
        """Read a file; None if there is none. Reports unreadable files."""
        try:
            file = read_properties(path)
        except FileNotFoundError:
            return None
        except UnreadableError as error:
            self._problems.add_file(str(path), str(error))
            return Properties(str(path), {})
        self._files.append(file)
        return file

    def _server(self, lookup: Lookup) -> ServerConfig:
        self._hints += exposed_files(
            (*SERVER_KEYS, *BROKER_SECRETS), lookup, self._conf_dir
        )
        self._hints += queue_hints(lookup)
        return read_server(lookup, self._problems, self._conf_dir)

    def _instance(
        self, destination: str, main: Sequence[Properties], server_lookup: Lookup
    ) -> InstanceConfig:
        path = self.instances_dir() / destination / modes.INSTANCE_FILE
        found = self._read(path)
        own = found or Properties(str(path), {})
        lookup = InstanceLookup(
            self._environ,
            [*main, own],
            fixed={"canal.instance.destination": destination},
        )
        problems = self._problems
        modes.refuse_instance_modes(server_lookup, destination, problems)
        grouped = modes.is_group(server_lookup, destination, problems)
        wiring = (
            group_sources.wiring(lookup, problems)
            if grouped
            else modes.wiring_of(server_lookup, destination, problems)
        )
        origin = main[-1].origin
        modes.check_zookeeper(lookup, destination, wiring, origin, problems)
        lazy = modes.is_lazy(server_lookup, destination, problems)
        read = self._anchor(read_all(INSTANCE_KEYS, lookup, problems, self._conf_dir))
        read["source.password"], warnings = decrypting(
            read.get("source.password", ""), lookup, problems
        )
        self._hints += warnings
        numbered = (
            group_sources.numbered_sources(lookup, problems, self._conf_dir)
            if grouped
            else {}
        )
        sources = group_sources.sources(
            {number: self._anchor(fields) for number, fields in numbered.items()},
            read,
            _source,
        )
        self._hints += group_sources.hints(lookup, problems, grouped=grouped)
        self._hints += hash_hints(lookup)
        self._hints += exposed_files(
            [*INSTANCE_KEYS, *group_sources.keys_of(numbered)], lookup, self._conf_dir
        )
        read.setdefault("position.data_dir", anchored(self._conf_dir, DATA_DIR_DEFAULT))
        read.setdefault(
            "table_meta.dir", Path(str(read["position.data_dir"]), destination)
        )
        config = InstanceConfig(
            destination=destination,
            file=Path(os.path.abspath(own.origin)),  # noqa: PTH100  # links stay
            lazy=lazy,
            source=sources[0] if sources else _source(read),
            group=sources,
            filter=FilterConfig(**fields_of(read, "filter.")),
            buffer=BufferConfig(**fields_of(read, "buffer.")),
            store=StoreConfig(**fields_of(read, "store.")),
            position=PositionConfig(wiring=wiring, **fields_of(read, "position.")),
            table_meta=TableMetaConfig(**fields_of(read, "table_meta.")),
            routing=RoutingConfig(**fields_of(read, "routing.")),
        )
        if grouped:
            group_sources.check(sources, lookup, own.origin, problems)
        else:
            self._check_address(
                config.source, lookup, own.origin, missing=found is None
            )
        if found is not None or config.source.master.address is not None:
            self._check_login(lookup, own.origin)
        for source in sources or (config.source,):
            self._check_source(source, lookup, own.origin)
            self._check_start(source, lookup)
            self._check_standby(source, lookup)
        history_location.check(config.table_meta, lookup, problems, own.origin)
        self._without_effect += set_without_effect(lookup)
        self._used |= lookup.used
        return config

    def _anchor(self, read: dict[str, object]) -> dict[str, object]:
        return {
            field: anchored(self._conf_dir, value) if isinstance(value, Path) else value
            for field, value in read.items()
        }

    def _check_address(
        self, source: SourceConfig, lookup: Lookup, file: str, *, missing: bool
    ) -> None:
        """Report a missing server address; `missing` is the file that should set it."""
        key = "canal.instance.master.address"
        # An invalid address has been reported already.
        if source.master.address is not None or find(lookup, key, self._problems):
            return
        if missing:
            self._problems.add_file(
                file,
                f"file not found, and {key} is not set elsewhere; set it in this file,"
                " or correct the names in canal.destinations",
            )
        else:
            self._problems.add(file, key, "", "no MySQL server is set; write host:port")

    def _check_login(self, lookup: Lookup, file: str) -> None:
        """Report a missing account: there is no default."""
        user, password = "canal.instance.dbUsername", PASSWORD_KEY
        if not lookup.is_set(user):
            self._problems.add(file, user, "", "not set; set a MySQL account")
        # One that is written and blank is the empty password.
        is_written = lookup.is_written(password)
        if not is_written and not is_given(password, lookup):
            self._problems.add(
                file,
                password,
                "",
                "not set; set the password of the account, or an empty value for none",
            )

    def _check_start(self, source: SourceConfig, lookup: Lookup) -> None:
        """Warn about a start position that has no effect as it is configured."""
        master = source.master
        name = f"master{source.number or ''}"
        for word, is_set, missing in (
            (
                "position",
                master.position and not master.journal_name,
                f"canal.instance.{name}.journal.name, the binlog file, is not set",
            ),
            (
                "gtid",
                master.gtid and not source.gtid_on,
                "canal.instance.gtidon is not true",
            ),
        ):
            key = f"canal.instance.{name}.{word}"
            found = find(lookup, key, self._problems)
            if is_set and found:
                self._hints.append(f"{found.origin}: {key}: no effect: {missing}")

    def _check_standby(self, source: SourceConfig, lookup: Lookup) -> None:
        """Warn about a standby that is never used, and a switch without a standby."""
        detecting = source.detecting
        switches = detecting.enable and detecting.switch_to_standby
        address = f"canal.instance.standby{source.number or ''}.address"
        for key, is_set, missing in (
            (
                address,
                source.standby.address is not None and not switches,
                "canal.instance.detecting.enable, .heartbeatHaEnable are not both true",
            ),
            (
                "canal.instance.detecting.heartbeatHaEnable",
                # In a group, other sources may have one.
                switches and source.standby.address is None and not source.number,
                f"{address} is not set",
            ),
        ):
            found = find(lookup, key, self._problems)
            if is_set and found:
                self._hints.append(f"{found.origin}: {key}: no effect: {missing}")

    def _check_source(self, source: SourceConfig, lookup: Lookup, file: str) -> None:
        """Report values that contradict each other or files that are unreadable."""

        def note(key: str, wrong: str) -> None:
            found = find(lookup, key, self._problems)
            self._problems.add(
                found.origin if found else file, key, found.text if found else "", wrong
            )

        if source.silence_s <= source.heartbeat_s:
            note(
                "canal.instance.network.silence.seconds",
                f"must be more than the heartbeat period of {source.heartbeat_s:g} s;"
                f" write {3 * source.heartbeat_s:g}",
            )
        for name, host in (("master", source.master), ("standby", source.standby)):
            prefix = f"canal.instance.{name}{source.number or ''}."
            check_host(host, prefix, note)

    def _data_dir(self, main: Sequence[Properties]) -> Path:
        # Values that depend on the destination are not available yet.
        fixed = {"canal.instance.destination": ""}
        lookup = InstanceLookup(self._environ, main, fixed=fixed)
        found = find(lookup, DATA_DIR_KEY, self._problems)
        path = Path(found.text) if found else DATA_DIR_DEFAULT
        return anchored(self._conf_dir, path)

    def _warnings(self, destinations: list[str]) -> list[str]:
        warnings = [*unserved_warning(self._without_effect), *self._hints]
        for file in self._files:
            warnings += unknown_warnings(file, destinations, self._used)
            warnings += [
                f"{file.origin}: {key}: written in lines"
                f" {', '.join(map(str, lines))}: the last one counts"
                for key, lines in file.repeated
            ]
            warnings += [
                f"{file.origin}: {key}: non-ASCII characters are read as ISO-8859-1;"
                " write them as \\uXXXX"
                for key in file.non_ascii
            ]
        return warnings


def _source(read: dict[str, object]) -> SourceConfig:
    return SourceConfig(
        master=HostConfig(**fields_of(read, "source.master.")),
        standby=HostConfig(**fields_of(read, "source.standby.")),
        detecting=DetectingConfig(**fields_of(read, "source.detecting.")),
        events=EventConfig(**fields_of(read, "source.events.")),
        **fields_of(read, "source."),
    )

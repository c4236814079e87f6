"""Starts that an operator requests: which settings count, and what is left alone."""

from __future__ import annotations

import pytest
from fix_conf import ACCOUNT

from canal_server.config.load import load
from canal_server.daemon.loaded_files import LoadedFiles
from canal_server.daemon.start_requests import StartRequests
from canal_server.errors import ClientError, ConfigError

SETTINGS = f"canal.instance.master.address = 127.0.0.1:1\n{ACCOUNT}"
MORE = "canal.instance.memory.buffer.size = 64\n"


class Noted:
    """Destinations of which one has a state, and what was asked of them."""

    def __init__(self, config) -> None:
        self._config = config
        self.status: dict[str, object] = {"running": False}
        self.done: list[object] = []

    def require(self, destination):
        """Return the settings of the one."""
        if destination != self._config.destination:
            raise ClientError(f"can't find destination:{destination}")
        return self._config

    def configs(self):
        """Return all settings."""
        return [self._config]

    def status_of(self, _):
        """Return its status."""
        return self.status

    def put(self, config):
        """Note other settings."""
        self._config = config
        self.done.append(config.store.buffer_size)

    def resume(self, destination):
        """Note a start."""
        self.done.append(destination)


@pytest.fixture
def conf(make_conf):
    """Give a folder with one destination."""
    return make_conf(example=SETTINGS)


@pytest.fixture
def file(conf):
    """Give its file of settings."""
    return conf / "example/instance.properties"


@pytest.fixture
def files(file):
    """Give the files of which a change needs a restart."""
    return LoadedFiles([file])


@pytest.fixture
def noted(conf):
    """Give the destinations."""
    return Noted(load(conf, {}).instances[0])


@pytest.fixture
def requests(conf, noted, files):
    """Give the requests."""
    return StartRequests(load(conf, {}), noted, files, dict)


def test_other_settings_count(requests, noted, file, files):
    """They are used before the start, and the file needs no restart any more."""
    requests.start("example")
    assert noted.done == ["example"]
    file.write_text(SETTINGS + MORE)
    assert files.changed() == [str(file)]
    requests.start("example")
    assert noted.done == ["example", 64, "example"]
    assert files.changed() == []


@pytest.mark.parametrize(
    ("status", "is_read"),
    [
        ({}, False),
        ({"error": "SourceRefused: x"}, True),
        ({"delivery": {"state": "delivering"}}, False),
        ({"delivery": {"state": "blocked"}}, False),
        ({"delivery": {"state": "stopped"}}, True),
    ],
)
def test_who_reads_is_left_alone(requests, noted, file, status, is_read):
    """Only one that cannot read or deliver has its settings read again."""
    noted.status = {"running": True, **status}
    file.write_text(SETTINGS + MORE)
    requests.start("example")
    assert noted.done == ([64, "example"] if is_read else ["example"])


def test_a_wrong_file(requests, noted, file):
    """Nothing is started with the previous settings, and the reason is said."""
    file.write_text(SETTINGS + "canal.instance.memory.buffer.size = many\n")
    with pytest.raises(ConfigError, match=r"memory\.buffer\.size"):
        requests.start("example")
    with pytest.raises(ClientError, match="can't find destination:none"):
        requests.start("none")
    assert noted.done == []

"""The tables of keys."""

from __future__ import annotations

import dataclasses
import re
import typing
from pathlib import Path

import pytest

from canal_server.config.key_tables import INSTANCE_KEYS, MODE_KEYS, SERVER_KEYS, Key
from canal_server.config.keys.mode_keys import (
    DESTINATION_MODES,
    HISTORY_MODES,
    SERVER_MODES,
    SOURCE_MODES,
)
from canal_server.config.load import load
from canal_server.config.password_forms import form_names
from canal_server.config.properties import Properties, read_properties
from canal_server.config.schema import InstanceConfig, ServerConfig
from canal_server.config.substitution import Lookup

ROOT = Path(__file__).parents[2]
CONF = ROOT / "conf"

# Where the default folder is meant to differ from the defaults in code.
DELIBERATE = {
    "canal.ip",
    "canal.instance.master.address",
    "canal.instance.dbUsername",
    "canal.instance.dbPassword",
    "canal.instance.master.sslMode",
    "canal.instance.standby.sslMode",
    "canal.instance.master.allowPublicKeyRetrieval",
    "canal.instance.standby.allowPublicKeyRetrieval",
    "canal.instance.filter.black.regex",
    "canal.instance.binlog.format",
    "canal.instance.binlog.image",
    "canal.instance.detecting.sql",
    "canal.instance.detecting.interval.time",
    "canal.file.data.dir",
    "canal.instance.tsdb.dir",
}
DEFAULTS = [
    mode
    for mode in (*SERVER_MODES, *DESTINATION_MODES, *SOURCE_MODES, *HISTORY_MODES)
    if mode.name != "canal.destinations"
]
FILLED_ELSEWHERE = {
    "log_subject",  # of the readers of a destination
    "file",
    "destination",
    "lazy",
    "position.wiring",
    "source.number",
    "group",
    "queue.mode",
    "queue.properties",
    "queue.origins",
    "queue.file",
    "routing.database_hash",
}


def leaves(cls, prefix=""):
    """Yield the path and type of each field, sections opened."""
    for name, kind in typing.get_type_hints(cls).items():
        if dataclasses.is_dataclass(kind) and name != "address":
            yield from leaves(kind, f"{prefix}{name}.")
        else:
            yield prefix + name, kind


def value_at(config, path):
    """Return a field of nested sections."""
    for name in path.split("."):
        config = getattr(config, name)
    return config


def reference(commented):
    """Return the keys of our conf folder, with those that are commented out."""
    values = {}
    for name in ("canal.properties", "example/instance.properties"):
        if commented:
            for line in (CONF / name).read_text().splitlines():
                if found := re.fullmatch(r"# (canal\.\S+) =(.*)", line):
                    values[found[1]] = found[2]
        else:
            values |= read_properties(CONF / name).values
    return values


@pytest.mark.parametrize(
    ("keys", "config"),
    [(SERVER_KEYS, ServerConfig), (INSTANCE_KEYS, InstanceConfig)],
    ids=["server", "instance"],
)
def test_each_field_has_one_key(keys, config):
    """Every field of the schema is filled by exactly one key, and no key by none."""
    fields = [path for path, _ in leaves(config) if path not in FILLED_ELSEWHERE]
    assert sorted(fields) == sorted(key.field for key in keys)


@pytest.mark.parametrize(
    ("key", "config"),
    [(key, ServerConfig) for key in SERVER_KEYS]
    + [(key, InstanceConfig) for key in INSTANCE_KEYS],
    ids=lambda value: value.name if isinstance(value, Key) else "",
)
def test_a_key_reads_its_fields_type(key, config):
    """What a key's text becomes has the type that its field declares."""
    kind = dict(leaves(config))[key.field]
    origin: typing.Any = typing.get_origin(kind)
    values = () if origin in {tuple, frozenset} else typing.get_args(kind)
    allowed = tuple(values) or (origin or kind,)
    accepted = []
    for text in ("true", "65536", "1048576", "64", "ROW", "FULL", "a:1",
                 "MEMSIZE", "DISABLED", "TLSv1.2", "JKS", "UTF-8", "ab" * 20,
                 "jdbc:h2:file",
                 "jdbc:mysql://h/d", "bin.000001:4=skip",
                     "http://a/", "none", "maxwell", "ddl", "string",
                     "RecordNameStrategy"):  # fmt: skip
        try:
            accepted.append(key.read(text))
        except ValueError:
            continue
    assert accepted
    assert all(isinstance(value, allowed) for value in accepted)


def test_the_reference_lists_every_key():
    """Our conf folder has every key of the schema, and no other."""
    keys = [key.name for key in (*SERVER_KEYS, *INSTANCE_KEYS)]
    listed = [*reference(commented=False), *reference(commented=True)]
    forms = form_names((*SERVER_KEYS, *INSTANCE_KEYS))
    assert sorted(listed) == sorted([*keys, *MODE_KEYS, *forms])


def test_what_is_commented_out_is_the_default():
    """A key that is commented out shows the default that holds without it."""
    for config, keys in ((ServerConfig(), SERVER_KEYS), (None, INSTANCE_KEYS)):
        defaults = config or InstanceConfig(destination="example")
        shown = Lookup({}, [Properties("shown", reference(commented=True))])
        for key in keys:
            if found := shown.find(key.name):
                assert key.read(found.text) == value_at(defaults, key.field), key.name


def test_the_reference_is_the_default():
    """Our conf folder says nothing else than the defaults, but where it means to."""
    config = load(CONF, {})
    defaults = InstanceConfig(destination="example")
    assert config.warnings == ()
    assert config.destinations == ("example",)
    for key in SERVER_KEYS:
        if key.name not in DELIBERATE:
            default = value_at(ServerConfig(), key.field)
            assert value_at(config.server, key.field) == default, key.name
    for key in INSTANCE_KEYS:
        if key.name not in DELIBERATE:
            default = value_at(defaults, key.field)
            assert value_at(config.instances[0], key.field) == default, key.name


@pytest.mark.parametrize("mode", DEFAULTS, ids=lambda mode: mode.name)
def test_the_default_of_a_mode_changes_nothing(tmp_path, mode):
    """A mode that is set to its default is as one that is not set."""
    text = "canal.destinations = example\n" + "".join(
        f"canal.instance.{line}\n"
        for line in ("master.address = db:3306", "dbUsername = u", "dbPassword = p")
    )
    (tmp_path / "canal.properties").write_text(text)
    expected = load(tmp_path, {})
    (tmp_path / "canal.properties").write_text(f"{text}{mode.name} = {mode.default}")
    assert load(tmp_path, {}) == expected


def test_the_reference_listens_on_loopback():
    """Our conf folder opens the port to this machine only."""
    assert load(CONF, {}).server.ip == "127.0.0.1"


def test_each_key_of_the_reference_is_explained():
    """Every paragraph of keys in our conf folder begins with a comment."""
    for name in ("canal.properties", "example/instance.properties"):
        paragraphs = (CONF / name).read_text().split("\n\n")
        for paragraph in paragraphs:
            lines = paragraph.strip("\n").splitlines()
            if any("canal." in line and " =" in line for line in lines):
                assert re.match(r"# (?!canal\.)\w", lines[0]), paragraph


def test_the_documentation_lists_every_key():
    """docs/reference/configuration.md names every key that is served."""
    text = (ROOT / "docs" / "reference" / "configuration.md").read_text()
    keys = [key.name for key in (*SERVER_KEYS, *INSTANCE_KEYS)]
    missing = [name for name in (*keys, *MODE_KEYS) if f"`{name}`" not in text]
    assert missing == []

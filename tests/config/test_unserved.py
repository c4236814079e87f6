"""Warnings about keys that do nothing."""

from __future__ import annotations

import pytest
from fix_conf import ACCOUNT

from canal_server.config.load import load

MASTER = f"canal.instance.master.address = db:3306\n{ACCOUNT}"
MAIN = "canal.destinations = example\n"


def warnings_of(conf, environ=None):
    """Return the warnings of a folder that can be used."""
    return load(conf, environ or {}).warnings


def test_one_warning_lists_what_is_not_served(make_conf):
    """All keys that ask for something missing stand in one line, each once."""
    conf = make_conf(
        "canal.destinations = example,b\ncanal.aliyun.uid = 9000\n",
        example=f"{MASTER}canal.instance.multi.stream.on = true\n",
        b=f"{MASTER}canal.mq.namespace = a\n",
    )
    (warning,) = warnings_of(conf)
    assert warning == (
        "not supported, no effect: canal.aliyun.uid,"
        " canal.instance.multi.stream.on, canal.mq.namespace"
    )


@pytest.mark.parametrize(
    "line",
    [
        "canal.aliyun.uid =",
        "canal.instance.detecting.enable = on",
        "canal.instance.parser.parallelThreadSize = 16",
        "canal.mq.flatMessage = TRUE",
        "canal.mq.dynamicTopic = a",
        "kafka.bootstrap.servers = elsewhere:9092",
    ],
)
def test_what_asks_for_nothing_is_silent(make_conf, line):
    """Values that are off or those of canal's own files give no warning."""
    assert warnings_of(make_conf(f"{MAIN}{line}\n")) == ()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("canal.instance.filter.druid.ddl", "no"),
    ],
)
def test_keys_that_are_read_but_not_served(make_conf, key, value):
    """A key whose feature does not exist is reported if it requests it."""
    (warning,) = warnings_of(make_conf(f"{MAIN}{key} = {value}\n"))
    assert warning == f"not supported, no effect: {key}"


def test_the_environment_can_ask_too(make_conf):
    """A variable that requests a missing feature is reported like a line of a file."""
    (warning,) = warnings_of(make_conf(), {"CANAL_ALIYUN_UID": "x"})
    assert "canal.aliyun.uid" in warning


def test_unknown_keys_name_their_nearest(make_conf):
    """A misspelt key is reported with its file and the most similar key."""
    conf = make_conf(f"{MAIN}canal.instance.dbusername = x\n")
    (warning,) = warnings_of(conf)
    assert warning == (
        f"{conf}/canal.properties: canal.instance.dbusername: unknown key, ignored;"
        " did you mean canal.instance.dbUsername?"
    )


def test_unknown_keys_without_a_neighbour(make_conf):
    """A key that resembles none gets no suggestion."""
    (warning,) = warnings_of(make_conf(f"{MAIN}canal.zzzzzzzzzz = x\n"))
    assert warning.endswith("canal.zzzzzzzzzz: unknown key, ignored")


def test_keys_of_other_programs_are_silent(make_conf):
    """Only keys that begin like canal's are looked at."""
    assert warnings_of(make_conf(f"{MAIN}my.own = x\nspring.x = y\n")) == ()


def test_keys_that_values_refer_to_are_known(make_conf):
    """An operator's own key that a value uses gives no warning."""
    conf = make_conf(
        f"{MAIN}canal.my.host = db\n",
        example="canal.instance.master.address = ${canal.my.host}:1\n" + ACCOUNT,
    )
    assert warnings_of(conf) == ()


def test_mode_keys_of_other_destinations_are_unknown(make_conf):
    """A mode key of a destination that is not configured is reported."""
    (warning,) = warnings_of(make_conf(f"{MAIN}canal.instance.exampel.lazy = true\n"))
    assert "did you mean canal.instance.example.lazy?" in warning


def test_raw_characters_are_reported(make_conf):
    """A value with raw non-ASCII characters is reported, as it is read as Latin-1."""
    conf = make_conf(f"{MAIN}canal.instance.filter.regex = größe\n")
    (warning,) = warnings_of(conf)
    assert "canal.instance.filter.regex: non-ASCII characters" in warning


def test_a_key_written_twice(make_conf) -> None:
    """Both lines are named, as only the last one counts; the values are not shown."""
    conf = make_conf(
        "canal.destinations = example\n# port\ncanal.port = 11\\\n111\n\n"
        "canal.port: 11112\n"
    )
    config = load(conf, {})
    assert config.server.port == 11112
    (warning,) = (each for each in config.warnings if "written" in each)
    assert warning == (
        f"{conf / 'canal.properties'}: canal.port: written in lines 3, 6: the last one"
        " counts"
    )

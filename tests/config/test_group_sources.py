"""Groups of sources: which servers they are, and what is wrong with them."""

from __future__ import annotations

import pytest
from fix_conf import ACCOUNT

from canal_server.config.load import load
from canal_server.config.schema import (
    Action,
    HostPort,
    InstanceConfig,
    NamedEvent,
    SourceConfig,
    Wiring,
)
from canal_server.errors import ConfigError

GROUP = "canal.instance.global.spring.xml = classpath:spring/group-instance.xml\n"
MAIN = f"canal.destinations = example\n{GROUP}{ACCOUNT}"
TWO = """
canal.instance.master1.address = a:3306
canal.instance.master2.address = b:3307
"""


def instance_of(conf) -> InstanceConfig:
    """Return the only instance of a folder."""
    (instance,) = load(conf, {}).instances
    return instance


def problems_of(conf):
    """Return what is wrong with a folder."""
    with pytest.raises(ConfigError) as raised:
        load(conf, {})
    return raised.value.problems


def test_sources_of_a_group(make_conf):
    """Each has its own address and position; other settings are common to all."""
    instance = instance_of(
        make_conf(
            MAIN,
            example=f"""{TWO}
canal.instance.master2.journal.name = bin.000002
canal.instance.master2.position = 4
canal.instance.standby2.address = c:3308
canal.instance.standby2.timestamp = 5
canal.instance.dbUsername = reader
canal.instance.gtidon = true
""",
        )
    )
    first, second = instance.group
    assert instance.source == first
    assert first.master.address == HostPort("a", 3306)
    assert first.standby.address is None
    assert second.master.address == HostPort("b", 3307)
    assert (second.master.journal_name, second.master.position) == ("bin.000002", 4)
    assert second.standby.address == HostPort("c", 3308)
    assert second.standby.timestamp_ms == 5
    for number, source in ((1, first), (2, second)):
        assert (source.number, source.user, source.gtid_on) == (number, "reader", True)


def test_unreadable_events_are_of_one_source(make_conf):
    """Events that may be passed over are named for each source, not for the group."""
    instance = instance_of(
        make_conf(
            MAIN,
            example=f"""{TWO}
canal.instance.master.unreadable.events = bin.000001:4=skip
canal.instance.master2.unreadable.events = bin.000002:5=raw
canal.instance.event.bytes.max = 1048576
""",
        )
    )
    first, second = (source.events for source in instance.group)
    assert first.unreadable == ()
    assert second.unreadable == (NamedEvent("bin.000002", 5, Action.RAW),)
    assert first.bytes_max == second.bytes_max == 1 << 20


def test_any_numbers(make_conf):
    """There may be one source or many; numbers may be left out."""
    conf = make_conf(
        MAIN,
        example="canal.instance.master3.address = c\n"
        "canal.instance.master64.address = d\n",
    )
    assert [source.number for source in instance_of(conf).group] == [3, 64]
    assert load(conf, {}).warnings == ()


def test_environment(make_conf):
    """A source may be named by a variable."""
    environ = {"CANAL_INSTANCE_MASTER2_ADDRESS": "b:1"}
    (instance,) = load(
        make_conf(MAIN, example="canal.instance.master1.address = a\n"), environ
    ).instances
    assert [str(each.master.address) for each in instance.group] == ["a:3306", "b:1"]


@pytest.mark.parametrize(
    ("more", "wiring"),
    [("", Wiring.FILE), ("canal.zkServers = z:2181\n", Wiring.ZOOKEEPER)],
)
def test_where_cursors_are(make_conf, more, wiring):
    """They are in a file, or in ZooKeeper where one is named."""
    instance = instance_of(make_conf(MAIN + more, example=TWO))
    assert instance.position.wiring is wiring


def test_settings_by_source(make_conf):
    """Each reader has a name and a folder for its history; a single one the plain."""
    instance = instance_of(make_conf(MAIN, example=TWO))
    first, second = instance.by_source
    assert (first.destination, second.destination) == (
        "example/master1",
        "example/master2",
    )
    assert second.source == instance.group[1]
    assert second.table_meta.dir == instance.table_meta.dir / "master2"
    assert second.position == instance.position
    single = InstanceConfig(destination="a", source=SourceConfig())
    assert single.by_source == (single,)


def test_without_a_source(make_conf):
    """A group without sources is refused; a plain address is not one of a group."""
    conf = make_conf(MAIN, example="canal.instance.master.address = a\n")
    (problem,) = problems_of(conf)
    assert "master1.address = : no source is set for the group" in problem


def test_one_server_twice(make_conf):
    """Two sources, or a source and a standby, must not be one server."""
    (problem,) = problems_of(
        make_conf(MAIN, example=f"{TWO}canal.instance.standby1.address = b:3307\n")
    )
    assert "canal.instance.master2.address = b:3307: also the server of" in problem
    assert "canal.instance.standby1.address" in problem


def test_standby_of_no_source(make_conf):
    """A standby without a source is reported with what is missing."""
    (problem,) = problems_of(
        make_conf(MAIN, example=f"{TWO}canal.instance.standby3.address = b:1\n")
    )
    assert "also set canal.instance.master3.address" in problem


def test_values_are_checked(make_conf):
    """An invalid value of a source is reported with its key."""
    (problem,) = problems_of(
        make_conf(MAIN, example=f"{TWO}canal.instance.master2.position = x\n")
    )
    assert "canal.instance.master2.position = x" in problem


def test_position_that_lacks_its_file(make_conf):
    """An offset without its file is reported with the keys of the source."""
    conf = make_conf(MAIN, example=f"{TWO}canal.instance.master2.position = 4\n")
    (warning,) = load(conf, {}).warnings
    assert "canal.instance.master2.position: no effect" in warning
    assert "canal.instance.master2.journal.name" in warning


def test_plain_address_in_a_group(make_conf):
    """It is left over, most likely."""
    conf = make_conf(MAIN, example=f"{TWO}canal.instance.master.address = a\n")
    (warning,) = load(conf, {}).warnings
    assert "canal.instance.master.address: no effect: the sources of" in warning


def test_sources_without_a_group(make_conf):
    """Numbered addresses of a single source are reported."""
    conf = make_conf(
        f"canal.destinations = example\n{ACCOUNT}",
        example=f"canal.instance.master.address = c\n{TWO}",
    )
    warnings = load(conf, {}).warnings
    assert len(warnings) == 2
    assert all(
        "require classpath:spring/group-instance.xml" in each for each in warnings
    )

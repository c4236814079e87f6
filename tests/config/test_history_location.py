"""Where the table history is kept."""

from __future__ import annotations

import pytest
from fix_conf import ACCOUNT

from canal_server.config import history_location
from canal_server.config.load import load
from canal_server.config.schema import HostPort, MysqlDatabase, SslMode
from canal_server.errors import ConfigError

MASTER = f"canal.instance.master.address = db:3306\n{ACCOUNT}"
TSDB = "canal.instance.tsdb."
MYSQL = f"{TSDB}url = jdbc:mysql://h/d\n{TSDB}dbUsername = u\n"
H2_XML = f"{TSDB}spring.xml = classpath:spring/tsdb/h2-tsdb.xml\n"
MYSQL_XML = f"{TSDB}spring.xml = classpath:spring/tsdb/mysql-tsdb.xml\n"


def config_of(make_conf, text=""):
    """Return the section that an instance with these lines has."""
    return load(make_conf(example=MASTER + text), {}).instances[0].table_meta


def problems_of(make_conf, text):
    """Return what is wrong with an instance with these lines."""
    with pytest.raises(ConfigError) as caught:
        config_of(make_conf, text)
    return caught.value.problems


def test_defaults(make_conf):
    """Without a setting the history is in a file of the destination's data folder."""
    config = config_of(make_conf)
    assert config.enable
    assert config.dir == make_conf() / "example"
    assert config.database is None
    assert (config.snapshot_interval_h, config.snapshot_expire_h) == (24, 360)


def test_dir_follows_the_data_folder(make_conf, tmp_path):
    """The default folder is the destination's, wherever the data is."""
    config = config_of(make_conf, f"canal.file.data.dir = {tmp_path}/data\n")
    assert config.dir == tmp_path / "data" / "example"


def test_everything(make_conf):
    """Each key reaches its field."""
    config = config_of(
        make_conf,
        f"{TSDB}enable = false\n{TSDB}dir = ../conf/x/${{canal.instance.destination}}\n"
        f"{TSDB}url = jdbc:mysql://h:3307/d\n{TSDB}dbUsername = u\n"
        f"{TSDB}dbPassword = hidden\n{MYSQL_XML}"
        f"{TSDB}snapshot.interval = 0\n{TSDB}snapshot.expire = 0\n",
    )
    assert not config.enable
    assert config.dir == make_conf() / "x" / "example"
    assert config.database == MysqlDatabase(HostPort("h", 3307), "d")
    assert (config.user, config.password) == ("u", "hidden")
    assert (config.snapshot_interval_h, config.snapshot_expire_h) == (0, 0)
    assert "hidden" not in repr(config)


@pytest.mark.parametrize(
    ("url", "host", "name", "ssl_mode"),
    [
        ("jdbc:mysql://h/d", HostPort("h", 3306), "d", "PREFERRED"),
        ("JDBC:MySQL://h:1/d?", HostPort("h", 1), "d", "PREFERRED"),
        ("jdbc:mysql://[::1]:1/a%20b", HostPort("::1", 1), "a b", "PREFERRED"),
        ("jdbc:mysql://h/d?useSSL=false", HostPort("h", 3306), "d", "DISABLED"),
        ("jdbc:mysql://h/d?a=b&useSSL=true", HostPort("h", 3306), "d", "REQUIRED"),
        ("jdbc:mysql://h/d?useSSL=true&sslMode=verify_ca", HostPort("h", 3306), "d",
         "VERIFY_CA"),
        ("jdbc:mysql://h/d?useUnicode=true&characterEncoding=UTF-8",
         HostPort("h", 3306), "d", "PREFERRED"),
    ],
)  # fmt: skip
def test_urls(url, host, name, ssl_mode):
    """The URL of a MySQL gives address, database and TLS."""
    assert history_location.database(url) == MysqlDatabase(
        host, name, SslMode[ssl_mode]
    )


def test_the_key_for_a_password(tmp_path):
    """The options of Connector/J say with which key a password is encrypted."""
    file = tmp_path / "public_key.pem"
    file.write_text("")
    url = (
        f"jdbc:mysql://h/d?allowPublicKeyRetrieval=false&serverRSAPublicKeyFile={file}"
    )
    found = history_location.database(url)
    assert found is not None
    assert found.server_public_key == file
    assert found.allow_public_key_retrieval is False
    silent = history_location.database("jdbc:mysql://h/d")
    assert silent is not None
    assert silent.allow_public_key_retrieval is None


def test_embedded():
    """The URL of the original's embedded database means the file."""
    assert (
        history_location.database("jdbc:h2:/a/h2;CACHE_SIZE=1000;MODE=MYSQL;") is None
    )


@pytest.mark.parametrize(
    ("url", "wrong"),
    [
        ("jdbc:postgresql://h/d", "write jdbc:mysql://host:port/database"),
        ("mysql://h/d", "leave it empty to use a file"),
        ("jdbc:mysql://h", "not the URL of a MySQL database"),
        ("jdbc:mysql:loadbalance://h/d", "not the URL of a MySQL database"),
        ("jdbc:mysql://h/", "contains no database name"),
        ("jdbc:mysql://h/" + "d" * 65, "contains no database name"),
        ("jdbc:mysql://a:1,b:2/d", "contains several servers"),
        ("jdbc:mysql:///d", "not an address"),
        ("jdbc:mysql://h:0/d", "port out of range"),
        ("jdbc:mysql://u:hidden@h/d", "contains an account"),
        ("jdbc:mysql://h/d?user=u&password=hidden", "contains an account"),
        ("jdbc:mysql://h/d?sslMode=x", "not an SSL mode"),
        ("jdbc:mysql://h/d?useSSL=x", "not a switch"),
        ("jdbc:mysql://h/d?serverRSAPublicKeyFile=/no/key.pem", "cannot read"),
        ("jdbc:mysql://h/d?allowPublicKeyRetrieval=x", "not a switch"),
    ],
)
def test_bad_urls(make_conf, url, wrong):
    """Any other URL is refused with the remedy, and never shown: it may be secret."""
    (problem,) = problems_of(make_conf, f"{TSDB}url = {url}\n")
    assert problem.startswith(f"{make_conf()}/example/instance.properties: {TSDB}url")
    assert wrong in problem
    assert "hidden)" in problem
    assert "=hidden" not in problem


@pytest.mark.parametrize(
    ("text", "key", "wrong"),
    [
        (H2_XML + MYSQL, "spring.xml", "but canal.instance.tsdb.url is a MySQL URL"),
        (MYSQL_XML, "url", "not a MySQL URL"),
        (f"{MYSQL_XML}{TSDB}url = jdbc:h2:f\n", "url", "not a MySQL URL"),
        (f"{TSDB}spring.xml = other.xml\n", "spring.xml", "h2-tsdb.xml or mysql-"),
        (f"{TSDB}url = jdbc:mysql://h/d\n", "dbUsername", "no account"),
        (f"{TSDB}snapshot.interval = -1\n", "snapshot.interval", "out of range"),
        (f"{TSDB}snapshot.expire = x\n", "snapshot.expire", "not a whole number"),
        (f"{TSDB}enable = x\n", "enable", "not a switch"),
    ],
)
def test_contradictions(make_conf, text, key, wrong):
    """A contradiction is reported at the key to change."""
    (problem,) = problems_of(make_conf, text)
    assert f": {TSDB}{key} = " in problem
    assert wrong in problem


@pytest.mark.parametrize("text", [MYSQL_XML + MYSQL, H2_XML, MYSQL, f"{TSDB}url=\n"])
def test_agreements(make_conf, text):
    """A URL alone, a fitting component set, or nothing can be used."""
    assert (config_of(make_conf, text).database is None) == (MYSQL not in text)


def test_off_asks_for_nothing(make_conf):
    """Without a history its settings may contradict each other."""
    assert not config_of(make_conf, f"{TSDB}enable = off\n{MYSQL_XML}").enable


def test_one_folder_for_two(make_conf, tmp_path):
    """Two destinations that would write one file are refused, with a remedy."""
    main = f"canal.destinations = a,b\n{TSDB}dir = {tmp_path}/x\n"
    with pytest.raises(ConfigError) as caught:
        load(make_conf(main, a=MASTER, b=MASTER), {})
    (problem,) = caught.value.problems
    assert "the same folder for a and b; use ${canal.instance.destination}" in problem
    for other in (f"{TSDB}enable = false\n", MYSQL):
        config = load(make_conf(main, a=MASTER, b=MASTER + other), {})
        assert config.destinations == ("a", "b")

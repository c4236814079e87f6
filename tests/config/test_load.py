"""Whole conf folders."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from fix_conf import ACCOUNT

from canal_server.config.conf_paths import anchored
from canal_server.config.load import InstanceLoader, load
from canal_server.config.schema import (
    BatchMode,
    HostPort,
    InstanceConfig,
    SslMode,
    Wiring,
)
from canal_server.errors import ConfigError

SHIPPED = Path(__file__).parent / "shipped"
ADDRESS = "canal.instance.master.address = db:3306\n"
MASTER = f"{ADDRESS}{ACCOUNT}"
MAIN = "canal.destinations = example\n"
GLOBAL_XML = "canal.instance.global.spring.xml"
HASH = "ab" * 20


def problems_of(conf, environ=None):
    """Return what `load` complains about."""
    with pytest.raises(ConfigError) as caught:
        load(conf, environ or {})
    return caught.value.problems


def test_javas_own_folder():
    """The folder that the Java server ships is accepted without a warning."""
    config = load(SHIPPED, {})
    assert config.warnings == ()
    assert config.server.port == 11111
    assert config.server.ip == ""
    assert config.data_dir == SHIPPED
    (example,) = config.instances
    assert example.destination == "example"
    assert not example.lazy
    assert example.source.master.address == HostPort("127.0.0.1", 3306)
    assert not example.source.master.has_start
    assert example.source.master.ssl_mode is SslMode.DISABLED
    assert example.source.standby.address is None
    assert (example.source.user, example.source.password) == ("canal", "canal")
    assert example.source.binlog_formats == ("ROW", "STATEMENT", "MIXED")
    assert example.source.detecting.interval_s == 3
    assert example.filter.regex == r".*\..*"
    assert example.filter.black_regex == r"mysql\.slave_.*"
    assert example.store.batch_mode is BatchMode.MEMSIZE
    assert example.buffer.transaction_size == 1024
    assert example.position.wiring is Wiring.FILE
    assert example.position.data_dir == SHIPPED
    assert example.table_meta.enable
    assert example.table_meta.dir == SHIPPED / "example"
    assert example.table_meta.database is None


def test_the_smallest_folder(make_conf):
    """Destinations, address and account are enough; the defaults are canal's."""
    (example,) = load(make_conf(MAIN, example=MASTER), {}).instances
    assert (example.source.user, example.source.password) == ("canal", "canal")
    assert example.filter.black_regex == ""
    assert example.position.wiring is Wiring.FILE
    assert example.source.binlog_formats == ()


def test_instances_override_the_server_file(make_conf):
    """A key of instance.properties wins over canal.properties for that instance."""
    size = "canal.instance.memory.buffer.size = "
    conf = make_conf(
        f"canal.destinations = a, b\n{size}64\n", a=MASTER, b=f"{MASTER}{size}128\n"
    )
    sizes = [instance.store.buffer_size for instance in load(conf, {}).instances]
    assert sizes == [64, 128]


def test_the_environment_wins(make_conf):
    """Variables under either spelling win over both files."""
    environ = {
        "canal.port": "0",
        "CANAL_INSTANCE_MASTER_ADDRESS": "elsewhere:1",
        "canal.instance.dbPassword": "p",
    }
    config = load(make_conf(), environ)
    assert config.server.port == 0
    assert config.instances[0].source.master.address == HostPort("elsewhere", 1)
    assert config.instances[0].source.password == "p"


@pytest.mark.parametrize(
    ("main", "names"),
    [
        ("canal.destinations = a , b,,a", ("a", "b")),
        (
            "canal.destinations = x\ncanal.destinations.expr = e{1-3}",
            ("e1", "e2", "e3"),
        ),
        ("canal.destinations.expr = e{9-10}", ("e9", "e10")),
        ("canal.destinations = a\ncanal.auto.scan = true", ("a", "found")),
        ("canal.destinations = a\ncanal.auto.scan = false", ("a",)),
    ],
)
def test_destinations(make_conf, main, names):
    """Names are trimmed and unique, expand to ranges, or are found as folders."""
    conf = make_conf(main, found=MASTER)
    (conf / "metrics").mkdir()
    environ = {
        "canal.instance.master.address": "db:1",
        "CANAL_INSTANCE_DBUSERNAME": "u",
        "CANAL_INSTANCE_DBPASSWORD": "p",
    }
    config = load(conf, environ)
    assert config.destinations == names


@pytest.mark.parametrize(
    ("main", "interval_s"),
    [
        ("", 0),
        ("canal.auto.scan.interval = 7", 0),
        ("canal.auto.scan = true", 5),
        ("canal.auto.scan = true\ncanal.auto.scan.interval = 7", 7),
    ],
)
def test_scans(make_conf, main, interval_s):
    """Folders are looked through again where they count, every 5 s by default."""
    config = load(make_conf(f"{MAIN}{main}"), {})
    assert config.scan_interval_s == interval_s


def test_the_first_destination_may_come_later(make_conf):
    """With a scan of folders, there may be none at first; it is reported."""
    conf = make_conf("canal.auto.scan = true", example=MASTER)
    shutil.rmtree(conf / "example")
    config = load(conf, {})
    assert config.instances == ()
    assert "no destinations yet" in "".join(config.warnings)


def test_one_destination_later(make_conf):
    """It is read with the canal.properties of before, and checked with the others."""
    before = "canal.instance.dbPassword = p\ncanal.instance.dbUsername = before"
    conf = make_conf(f"{MAIN}{before}", example=MASTER)
    loader = InstanceLoader(conf, {})
    (conf / "canal.properties").write_text("canal.instance.dbUsername = after")
    (conf / "new").mkdir()
    file = conf / "new" / "instance.properties"
    file.write_text(f"{ADDRESS}canal.instance.dbUsrname = typo\n")
    config, warnings = loader.load("new", [])
    assert config.destination == "new"
    assert config.source.user == "before"
    assert len(warnings) == 1
    assert "dbUsrname" in warnings[0]
    other = InstanceConfig(destination="other", table_meta=config.table_meta)
    with pytest.raises(ConfigError, match="the same folder for other and new"):
        loader.load("new", [other])
    # With its own previous settings, it may share everything.
    assert loader.load("new", [config])[0] == config


@pytest.mark.parametrize(
    ("main", "problem"),
    [
        ("", "canal.destinations = : no destinations; set at least one"),
        ("canal.destinations = ../x", "invalid name ../x"),
        ("canal.destinations.expr = e{3-1}", "write it like example{1-3}"),
        ("canal.destinations.expr = e{1-99999999}", "more than 10000 names"),
        ("canal.destinations.expr = e", "write it like example{1-3}"),
        (f"{MAIN}canal.auto.scan = perhaps", "write true or false"),
        (
            f"{MAIN}canal.serverMode = rocketMQ",
            "canal.serverMode = rocketMQ: RocketMQ is not supported",
        ),
        (
            f"{MAIN}canal.zkServers = z:2181",
            "canal.zkServers = z:2181: servers would share",
        ),
        (
            f"{MAIN}{GLOBAL_XML} = default-instance.xml\ncanal.zkServers = a b",
            "canal.zkServers = a b: not a list of servers",
        ),
        (
            f"{MAIN}canal.instance.global.mode = manager",
            "canal.instance.global.mode = manager: canal.admin.manager is not set",
        ),
        (
            f"{MAIN}canal.instance.example.mode = manager",
            "canal.instance.example.mode = manager: all destinations have the same",
        ),
        (
            f"{MAIN}canal.instance.example.mode = xml",
            "canal.instance.example.mode = xml: unsupported mode",
        ),
        (
            f"{MAIN}{GLOBAL_XML} = classpath:spring/default-instance.xml",
            "canal.zkServers = : no ZooKeeper is set, but example stores its cursors",
        ),
        (
            f"{MAIN}canal.instance.example.spring.xml = my.xml",
            "canal.instance.example.spring.xml = my.xml: unknown component set",
        ),
        (f"{MAIN}canal.instance.enableDruid = true", "set canal.instance.enableDruid"),
        (f"{MAIN}canal.user = canal", "user without canal.passwd"),
        (f"{MAIN}canal.http.user = ops", "user without canal.http.passwd"),
        (f"{MAIN}canal.alarm.webhook.url = a.example", "expected http://host/path"),
        (f"{MAIN}canal.alarm.command = page 'me", "not a command line"),
        (f"{MAIN}canal.port = 70000", "canal.port = 70000: out of range"),
        (
            f"{MAIN}canal.instance.network.silence.seconds = 3",
            "must be more than the heartbeat period of 3 s; write 9",
        ),
        (f"{MAIN}canal.instance.master.sslCa = no.pem", "no.pem; set a PEM file"),
        (
            f"{MAIN}canal.instance.dbUsername = ${{canal.instance.dbUsername}}",
            "canal.instance.dbUsername -> canal.instance.dbUsername); remove",
        ),
    ],
)
def test_refusals(make_conf, main, problem):
    """What cannot be used or is not served ends in one sentence with a remedy."""
    conf = make_conf(f"{ACCOUNT}{main}", example=ADDRESS)
    (sentence,) = problems_of(conf)
    assert sentence.startswith(str(conf / "canal.properties"))
    assert problem in sentence


def test_a_missing_address_is_a_problem(make_conf):
    """An instance without a source is refused with the name of its file."""
    conf = make_conf(MAIN, example=ACCOUNT)
    (sentence,) = problems_of(conf)
    assert sentence == (
        f"{conf}/example/instance.properties: canal.instance.master.address = :"
        " no MySQL server is set; write host:port"
    )


def test_a_key_without_its_certificate_is_a_problem(make_conf):
    """A private key requires a certificate."""
    conf = make_conf(MAIN, example=f"{MASTER}canal.instance.master.sslKey = k.pem\n")
    (conf / "k.pem").touch()
    (sentence,) = problems_of(conf)
    assert "also set canal.instance.master.sslCert" in sentence


def test_all_problems_at_once(make_conf):
    """Every invalid key of every file is reported, each once."""
    bad = "canal.instance.master.address = x:y:z\ncanal.instance.gtidon = perhaps\n"
    bad += ACCOUNT
    conf = make_conf(
        "canal.destinations = a, b\ncanal.port = x\ncanal.serverMode = rocketMQ\n"
        "canal.instance.transaction.size = 1000\n",
        a=bad,
        b=bad,
    )
    sentences = problems_of(conf)
    assert len(sentences) == len(set(sentences)) == 7
    for key, count in (
        ("canal.port", 1),
        ("canal.serverMode", 1),
        ("canal.instance.transaction.size", 1),
        ("canal.instance.master.address", 2),
        ("canal.instance.gtidon", 2),
    ):
        assert sum(f": {key} = " in sentence for sentence in sentences) == count


def test_secrets_are_never_shown(make_conf):
    """No password shows in a problem, a warning or the text of the settings."""
    conf = make_conf(
        f"{MAIN}canal.passwd = hunter2\n",
        example=f"{MASTER}canal.instance.dbPassword = ${{canal.instance.dbPassword}}\n",
    )
    assert not any("hunter2" in sentence for sentence in problems_of(conf))
    assert any("canal.passwd = (hidden): " in line for line in problems_of(conf))
    conf = make_conf(
        f"{MAIN}canal.user=u\ncanal.passwd={HASH}\ncanal.instance.dbPasword=hunter2",
        example=f"{MASTER}canal.instance.dbPassword = hunter2\n",
    )
    config = load(conf, {})
    assert config.instances[0].source.password == "hunter2"
    assert len(config.warnings) == 2  # the password of MASTER is written, too
    assert "hunter2" not in repr(config)
    assert "abab" not in repr(config)


def test_a_missing_folder(tmp_path):
    """A folder without canal.properties says how to name the right one."""
    (sentence,) = problems_of(tmp_path)
    assert sentence == (
        f"{tmp_path}/canal.properties: file not found; set the conf folder with --conf"
    )


def test_an_unreadable_file_is_named(make_conf):
    """An invalid escape in an instance's file is reported with that file."""
    conf = make_conf(MAIN, example=f"{MASTER}canal.file.data.dir = c:\\uploads\n")
    sentences = problems_of(conf)
    assert any(
        line.startswith(f"{conf}/example/instance.properties: line 4: \\u is not")
        for line in sentences
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("../conf", "/x/etc"),
        ("../conf/data", "/x/etc/data"),
        ("../data", "/x/data"),
        ("data", "/x/etc/data"),
        ("/var/lib", "/var/lib"),
    ],
)
def test_relative_paths(text, expected):
    """`../conf` is the conf folder whatever its name, other paths begin there."""
    assert anchored(Path("/x/etc"), Path(text)) == Path(expected)


def test_lazy_and_wiring_of_one_destination(make_conf):
    """A destination's own mode keys win over the global ones."""
    conf = make_conf(
        "canal.destinations = a,b\ncanal.instance.global.lazy = true\n"
        "canal.instance.b.lazy = false\n"
        "canal.instance.b.spring.xml = classpath:spring/memory-instance.xml\n",
        a=MASTER,
        b=MASTER,
    )
    first, second = load(conf, {}).instances
    assert (first.lazy, first.position.wiring) == (True, Wiring.FILE)
    assert (second.lazy, second.position.wiring) == (False, Wiring.MEMORY)


def test_two_loads_are_equal(make_conf):
    """The same files and environment give equal settings, which can be compared."""
    conf = make_conf()
    assert load(conf, {}) == load(conf, {})


def test_a_destination_without_a_file(make_conf):
    """A missing folder is reported as a missing file."""
    conf = make_conf("canal.destinations = example,other\n", example=MASTER)
    (problem,) = problems_of(conf)
    assert problem.startswith(f"{conf}/other/instance.properties: file not found")
    assert "canal.instance.master.address" in problem


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("position = 4\n", "position: no effect: canal.instance.master.journal"),
        ("gtid = a:1-2\n", "gtid: no effect: canal.instance.gtidon is not true"),
        ("position = 4\ncanal.instance.master.journal.name = b.1\n", None),
        ("gtid = a:1-2\ncanal.instance.gtidon = true\n", None),
    ],
)
def test_a_position_that_is_not_used(make_conf, lines, expected):
    """A start position that lacks a setting is a warning that says so."""
    conf = make_conf(MAIN, example=f"{MASTER}canal.instance.master.{lines}")
    warnings = load(conf, {}).warnings
    if expected is None:
        assert warnings == ()
    else:
        (warning,) = warnings
        assert f"instance.properties: canal.instance.master.{expected}" in warning


STANDBY = "standby.address = db2:3306\n"
WATCH = "canal.instance.detecting.enable = true\n"
SWITCH = "canal.instance.detecting.heartbeatHaEnable = true\n"


@pytest.mark.parametrize(
    ("main", "lines", "expected"),
    [
        ("", f"canal.instance.{STANDBY}", "standby.address: no effect"),
        (WATCH, f"canal.instance.{STANDBY}", "standby.address: no effect"),
        (WATCH + SWITCH, "", "heartbeatHaEnable: no effect"),
        (WATCH + SWITCH, f"canal.instance.{STANDBY}", ""),
        (WATCH, "", ""),
    ],
)
def test_a_standby_that_is_never_used(make_conf, main, lines, expected):
    """A standby, the watch and the leave to switch belong together: else a warning."""
    conf = make_conf(
        f"canal.destinations = example\n{main}",
        example=f"{MASTER}{lines}",
    )
    warnings = load(conf, {}).warnings
    assert [expected in warning for warning in warnings] == ([True] if expected else [])


def test_cursors_in_zookeeper(make_conf):
    """The ZooKeeper of a destination is named for it or for all."""
    conf = make_conf(
        f"canal.destinations = a, b\n{GLOBAL_XML} = default-instance.xml\n"
        "canal.zkServers = ${ZK:z1:2181},z2\ncanal.zookeeper.flush.period = 20\n",
        a=MASTER,
        b=f"{MASTER}canal.zkServers = z3:2182/own\n",
    )
    config = load(conf, {})
    a, b = (instance.position for instance in config.instances)
    assert (a.wiring, a.zookeeper_servers) == (Wiring.ZOOKEEPER, "z1:2181,z2")
    assert (b.wiring, b.zookeeper_servers) == (Wiring.ZOOKEEPER, "z3:2182/own")
    assert a.zookeeper_flush_period_ms == 20
    (warning,) = config.warnings
    assert "canal.zkServers shares a, b with other servers" in warning


@pytest.mark.parametrize(
    ("xml", "lines", "warns"),
    [
        ("default-instance.xml", "", True),
        ("group-instance.xml", "", True),
        ("default-instance.xml", "canal.instance.tsdb.enable = false\n", False),
        (
            "default-instance.xml",
            (
                "canal.instance.tsdb.url = jdbc:mysql://h/d\n"
                "canal.instance.tsdb.dbUsername = u\n"
            ),
            False,
        ),
        ("file-instance.xml", "", False),
    ],
)
def test_a_cluster_with_a_history_for_each_server(make_conf, xml, lines, warns):
    """One warning names both keys and the remedy; with MySQL there is no warning."""
    servers = "" if xml.startswith("file") else "canal.zkServers = z1:2181\n"
    master = MASTER.replace("master.", "master1.") if "group" in xml else MASTER
    names = [f"d{number}" for number in range(7)]
    conf = make_conf(
        f"canal.destinations = {','.join(names)}\n{GLOBAL_XML} = {xml}\n"
        f"{servers}{lines}",
        **dict.fromkeys(names, master),
    )
    warnings = load(conf, {}).warnings
    assert len(warnings) == warns
    for warning in warnings:
        assert warning.startswith(
            f"{conf}/canal.properties: canal.zkServers shares d0, d1, d2, d3, d4 and 2"
            " more with other servers, but canal.instance.tsdb.url is not a MySQL URL"
        )
        assert warning.endswith(
            "set canal.instance.tsdb.url = jdbc:mysql://host:port/database on all"
            " servers"
        )


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (
            "dbPassword = p",
            "canal.instance.dbUsername = : not set; set a MySQL account",
        ),
        (
            "dbUsername = \ncanal.instance.dbPassword = p",
            "canal.instance.dbUsername = : not set; set a MySQL account",
        ),
        ("dbUsername = u", "canal.instance.dbPassword = : not set"),
        ("dbUsername = ${NAME}", "dbUsername = ${NAME}: ${NAME} is not set"),
        ("dbPassword = ${NAME}", "dbPassword = (hidden): ${NAME} is not set"),
        ("dbPassword = x${NAME}", "dbPassword = (hidden): contains ${…}, which"),
    ],
)
def test_a_login_is_not_made_up(make_conf, lines, expected):
    """A missing account or password is a problem; Java's defaults are not used."""
    text = f"canal.instance.{lines}\n"
    if "${" in lines:
        other = "dbUsername" if "dbPassword" in lines else "dbPassword"
        text += f"canal.instance.{other} = p\n"
    (sentence,) = problems_of(make_conf(MAIN, example=ADDRESS + text))
    assert expected in sentence
    assert sentence.startswith("/")


def test_neither_account_nor_password(make_conf):
    """Both are reported in one go."""
    account, password = problems_of(make_conf(MAIN, example=ADDRESS))
    assert "canal.instance.dbUsername = : not set; set a MySQL account" in account
    assert "canal.instance.dbPassword = : not set" in password


def test_filters_and_unknown_keys_are_reported_with_the_rest(make_conf):
    """Nothing is left for a second start, whichever destination it is of.

    A filter's error has the form of the others.
    """
    conf = make_conf(
        "canal.destinations = a, b, c\n",
        a=f"{ADDRESS}{ACCOUNT}canal.instance.filter.regex = shop\\\\.(a|b\n",
        b=f"{ADDRESS}{ACCOUNT}canal.instance.filter.black.regex = [\n",
        c=f"{ADDRESS}canal.instance.dbUsername = u\ncanal.instance.dbPasswrd = p\n",
    )
    with pytest.raises(ConfigError) as caught:
        load(conf, {})
    white, black, password = caught.value.problems
    file = "instance.properties: canal.instance"
    assert white.startswith(rf"{conf}/a/{file}.filter.regex = shop\.(a|b: ")
    assert black.startswith(f"{conf}/b/{file}.filter.black.regex = [: ")
    assert password.startswith(f"{conf}/c/{file}.dbPassword = : not set; ")
    (warning,) = caught.value.warnings
    assert warning == (
        f"{conf}/c/{file}.dbPasswrd: unknown key, ignored; did you mean"
        " canal.instance.dbPassword?"
    )


def test_an_account_without_a_password(make_conf):
    """A password that is written as nothing is an empty one."""
    login = "canal.instance.dbUsername = u\ncanal.instance.dbPassword =\n"
    (example,) = load(make_conf(MAIN, example=ADDRESS + login), {}).instances
    assert (example.source.user, example.source.password) == ("u", "")


def test_what_editors_and_templates_leave_behind(make_conf):
    """A byte order mark is skipped; host lists and unset names are reported at once."""
    conf = make_conf(
        MAIN,
        example="canal.instance.standby.address = db2,db3:3306\n"
        "canal.instance.filter.regex = ${TABLES}\n",
    )
    file = conf / "example" / "instance.properties"
    file.write_bytes(b"\xef\xbb\xbf" + ADDRESS.encode() + file.read_bytes())
    (conf / "canal.properties").write_bytes(
        b"\xef\xbb\xbf" + MAIN.encode() + b"canal.port = ${PORT}\n"
    )
    text = "\n".join(problems_of(conf))
    assert "standby.address = db2,db3:3306: contains several servers" in text
    assert "filter.regex = ${TABLES}: ${TABLES} is not set" in text
    assert "canal.port = ${PORT}: ${PORT} is not replaced" in text
    assert "dbUsername = : not set; set a MySQL account" in text
    assert "dbPassword = : not set" in text
    assert "canal.instance.master.address" not in text
    assert "canal.destinations" not in text
    assert len(text.splitlines()) == 5


OPEN = "anyone who can reach this address could read all tables: set canal.user and"
CERTIFICATES = (
    "canal.tls.certFile = a.pem\ncanal.tls.clientCaFile = b.pem\n"
    "canal.tls.clientCertificates = required\n"
)


@pytest.mark.parametrize("ip", ["0.0.0.0", "::", "192.0.2.1", "db.example"])
@pytest.mark.parametrize(
    ("more", "is_open"),
    [
        ("", True),
        ("canal.anonymous.enable = false\n", True),
        # Who does not use TLS is not asked for a certificate.
        (CERTIFICATES, True),
        (f"{CERTIFICATES}canal.tls.required = true\n", False),
        ("canal.anonymous.enable = true\n", False),
        (f"canal.passwd = {HASH}\n", False),
        (f"canal.user = canal\ncanal.passwd = {HASH}\n", False),
        ("canal.withoutNetty = true\n", False),
    ],
)
def test_a_port_open_by_mistake(make_conf, ip, more, is_open):
    """An address beyond the loopback interface needs a login, or a word that it may."""
    conf = make_conf(f"{MAIN}canal.ip = {ip}\n{more}")
    if is_open:
        (problem,) = problems_of(conf)
        assert f"canal.ip = {ip}: {OPEN}" in problem
        assert "canal.anonymous.enable" in problem
    else:
        load(conf, {})


@pytest.mark.parametrize("ip", ["", "127.0.0.1", "127.1.2.3", "::1", "LocalHost"])
def test_a_port_for_this_host(make_conf, ip):
    """The loopback interface needs no login, nor does a folder of the Java server."""
    load(make_conf(f"{MAIN}canal.ip = {ip}\n"), {})

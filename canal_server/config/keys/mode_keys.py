"""The keys that decide what is served; `canal_server.config.modes` reads them."""

from __future__ import annotations

from canal_server.config import history_location
from canal_server.config.keys.setting import Mode

SCAN_INTERVAL_S = 5.0

SERVER_MODES = (
    Mode(
        "canal.serverMode",
        "`tcp`, `kafka`, `rabbitMQ` or `pulsarMQ`",
        "tcp",
        "How changes leave the server: clients pull them, or they are sent to [Apache"
        " Kafka](../howto/message-queues.md), [RabbitMQ](../howto/rabbitmq.md) or"
        " [Pulsar](../howto/pulsar.md).",
    ),
    Mode(
        "canal.destinations",
        "names, separated by commas",
        "",
        "The names of the instances. Each has a folder of that name.",
    ),
    Mode(
        "canal.destinations.expr",
        "`prefix{first-last}`",
        "",
        "Numbered names, instead of `canal.destinations`: `example{1-3}` means"
        " `example1`, `example2` and `example3`.",
    ),
    Mode(
        "canal.auto.scan",
        "`true` or `false`",
        "false",
        "`true` adds the folders that hold an `instance.properties`, and"
        " [follows changes of them](../howto/destinations.md) while the server runs.",
    ),
    Mode(
        "canal.auto.scan.interval",
        "whole number of seconds, 1 to 86400",
        f"{SCAN_INTERVAL_S:g}",
        "The time between two scans of the folders.",
    ),
    Mode(
        "canal.conf.dir",
        "path",
        "",
        "The conf folder, for use as `${canal.conf.dir}` in other values.",
    ),
)

# Each also exists for a single destination, as canal.instance.<destination>.<word>.
DESTINATION_MODES = (
    Mode(
        "canal.instance.global.mode",
        "`spring` or `manager`",
        "spring",
        "Where the settings of instances come from: `spring` from files of the conf"
        " folder, `manager` from [canal-admin](#canaladminmanager). The same for all"
        " destinations.",
    ),
    Mode(
        "canal.instance.global.lazy",
        "`true` or `false`",
        "false",
        "`true` starts an instance with its first subscription.",
    ),
    Mode(
        "canal.instance.global.spring.xml",
        "name of a component set",
        "file-instance.xml",
        "Where cursors are stored. `memory-instance.xml` keeps cursors in memory only,"
        " `file-instance.xml` in `meta.dat`, `default-instance.xml` in"
        " [ZooKeeper](data-files.md#cursors-in-zookeeper). `group-instance.xml` merges"
        " [several sources](#a-group-of-sources); its cursors are in `meta.dat`, or in"
        " ZooKeeper if `canal.zkServers` is set. A prefix such as `classpath:spring/`"
        " is ignored.",
    ),
    Mode(
        "canal.instance.global.manager.address",
        "text",
        "",
        "The address of canal-admin. It is not used; set `canal.admin.manager`.",
    ),
)

SOURCE_MODES = (
    Mode(
        "canal.instance.enableDruid",
        "`true` or `false`",
        "false",
        "`true` means that `canal.instance.dbPassword` is [encrypted with druid's"
        " ConfigTools](../howto/secrets.md#passwords-encrypted-with-druid). Whoever can"
        " read the settings can decrypt it.",
    ),
    Mode(
        "canal.instance.pwdPublicKey",
        "base64",
        "",
        "The public key that decrypts it, as ConfigTools prints it. Empty means the key"
        " that is part of druid, with a warning; the Java server uses that key only if"
        " this one is in the file with an empty value.",
    ),
)

HISTORY_MODES = (
    Mode(
        history_location.SPRING_KEY,
        "name of a component set",
        "",
        "Which of the two is meant: `classpath:spring/tsdb/h2-tsdb.xml` is the file,"
        " `classpath:spring/tsdb/mysql-tsdb.xml` is a MySQL server. A value that"
        " contradicts the URL is an error. Empty decides by the URL.",
    ),
)

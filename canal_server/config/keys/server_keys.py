"""The keys of the server itself: its port and its clients."""

from __future__ import annotations

from canal_server.config import values
from canal_server.config.keys.setting import DAY_S, Key
from canal_server.config.values import INT32_MAX, PORT_MAX

PORT_KEYS = (
    Key(
        "canal.ip",
        "ip",
        values.host,
        "The address that the server listens on. Empty means all addresses of the"
        " host.",
    ),
    Key(
        "canal.port",
        "port",
        values.integer(0, PORT_MAX),
        "The TCP port for clients. 0 picks any free port.",
    ),
    Key(
        "canal.register.ip",
        "register_ip",
        values.host,
        "The IPv4 address or name that [ZooKeeper](../howto/cluster.md) gives to"
        " clients. Empty means `canal.ip`, or, if that is empty too, the first address"
        " of the host that is not a loopback address.",
    ),
    Key(
        "canal.withoutNetty",
        "listen",
        values.opposite,
        "`true` opens no port for clients.",
    ),
    Key(
        "canal.user",
        "user",
        values.text,
        "The name that clients log in with. Empty lets anyone log in.",
    ),
    Key(
        "canal.passwd",
        "passwd",
        values.password_hash,
        "The password of clients, as hex(SHA1(SHA1(password)));"
        " [how to compute it](../howto/security.md).",
        secret=True,
        has_forms=True,
    ),
    Key(
        "canal.users.file",
        "users_file",
        values.folder,
        "A file with [users and their rights](../howto/users.md), readable by the"
        " server's account only. It is read again when it changes. Empty means that"
        " there is no other user than `canal.user`.",
        ours=True,
    ),
    Key(
        "canal.audit.file",
        "audit_file",
        values.folder,
        "A file that gets a line of JSON for each [event of the"
        " audit](../reference/audit.md): who logged in, what was read, who moved a"
        " cursor. Empty means none.",
        ours=True,
    ),
    Key(
        "canal.anonymous.enable",
        "anonymous",
        values.boolean,
        "`true` lets everybody log in who can reach `canal.ip`. Without it, an address"
        " that is not of the loopback interface needs `canal.passwd`,"
        " `canal.users.file`, or required [certificates of"
        " clients](../howto/tls.md#ask-clients-for-a-certificate).",
        ours=True,
    ),
    Key(
        "canal.server.connections.max",
        "connections_max",
        values.integer(1, 100_000),
        "The maximum number of connections at the same time. Further connections are"
        " refused.",
        ours=True,
    ),
    Key(
        "canal.server.connections.per.address.max",
        "per_address_max",
        values.integer(1, 100_000),
        "The maximum number of connections from one address. All addresses of an IPv6"
        " /64 network count as one. The ports for HTTP have the same limit, but at most"
        " half of their connections: 50 of 100 for the page, 25 of 50 for metrics.",
        ours=True,
    ),
    Key(
        "canal.server.connections.per.user.max",
        "per_user_max",
        values.integer(1, 100_000),
        "The maximum number of connections of one user, unless the file of users names"
        " another one.",
        ours=True,
    ),
    Key(
        "canal.server.connections.pending.max",
        "pending_max",
        values.integer(1, 100_000),
        "The maximum number of connections that have not logged in. When there are"
        " more, or when all connections are in use, the server closes the oldest"
        " pending connection of the address that has the most of them. At the ports for"
        " HTTP, a connection is pending while it has no request; at most half of all"
        " connections are.",
        ours=True,
    ),
    Key(
        "canal.server.handshake.timeout.seconds",
        "handshake_timeout_s",
        values.seconds(1, DAY_S),
        "How long a connection may take to log in.",
        ours=True,
    ),
    Key(
        "canal.server.send.timeout.seconds",
        "send_timeout_s",
        values.seconds(1, DAY_S),
        "How long a client may read nothing of a response before the server closes the"
        " connection. A client can ask for a shorter time.",
        ours=True,
    ),
    Key(
        "canal.metrics.pull.port",
        "metrics_port",
        values.integer(-1, PORT_MAX),
        "The TCP port at which [Prometheus](../howto/metrics.md) reads metrics. -1"
        " opens none, 0 picks any free port.",
    ),
    Key(
        "canal.metrics.ip",
        "metrics_ip",
        values.host,
        "The address of the port for metrics. Empty means `canal.ip`, or, if that is"
        " empty too, 127.0.0.1.",
        ours=True,
    ),
    Key(
        "canal.http.port",
        "http_port",
        values.integer(-1, PORT_MAX),
        "The TCP port of [the page and the REST interface](../howto/page.md). -1 opens"
        " none, 0 picks any free port.",
        ours=True,
    ),
    Key(
        "canal.http.ip",
        "http_ip",
        values.host,
        "The address of `canal.http.port`. On other addresses than those of the"
        " loopback interface, the page shows the state to everybody unless a login is"
        " set, and allows actions and tails only with a login.",
        ours=True,
    ),
    Key(
        "canal.http.user",
        "http_user",
        values.text,
        "The name to log in with at `canal.http.port`. Empty requires no login.",
        ours=True,
    ),
    Key(
        "canal.http.passwd",
        "http_passwd",
        values.password_hash,
        "The password of `canal.http.user`, in the same form as `canal.passwd`.",
        secret=True,
        has_forms=True,
        ours=True,
    ),
    Key(
        "canal.admin.port",
        "admin_port",
        values.integer(-1, PORT_MAX),
        "The TCP port for [canal-admin](../howto/canal-admin.md). -1 opens none, 0"
        " picks any free port. Without a password, or with that of canal's own files,"
        " it listens on 127.0.0.1 only; otherwise on `canal.ip`.",
    ),
    Key(
        "canal.admin.user",
        "admin_user",
        values.text,
        "The name that canal-admin logs in with. Empty accepts any.",
    ),
    Key(
        "canal.admin.passwd",
        "admin_passwd",
        values.password_hash,
        "The password of canal-admin, in the same form as `canal.passwd`.",
        secret=True,
        has_forms=True,
    ),
    Key(
        "canal.alarm.after.seconds",
        "alarm_after_s",
        values.seconds(0, DAY_S),
        "For how long a condition must last to be [an alarm](../howto/alarms.md).",
        ours=True,
    ),
    Key(
        "canal.alarm.lag.seconds",
        "alarm_lag_s",
        values.seconds(0, DAY_S),
        "The lag behind the source above which there is an alarm. 0 means none.",
        ours=True,
    ),
    Key(
        "canal.alarm.client.lag.seconds",
        "alarm_client_lag_s",
        values.seconds(0, DAY_S),
        "For how long a client may have changes that it has not acked before there is"
        " an alarm. 0 means none.",
        ours=True,
    ),
    Key(
        "canal.alarm.webhook.url",
        "alarm_webhook",
        values.web_url,
        "The URL that gets alarms by POST. Empty means none.",
        secret=True,
        has_forms=True,
        ours=True,
    ),
    Key(
        "canal.alarm.command",
        "alarm_command",
        values.command,
        "The command that is run for each alarm, without a shell. Empty means none.",
        ours=True,
    ),
    Key(
        "canal.log.file.megabytes",
        "log_file_megabytes",
        values.integer(1, 100_000, "megabytes"),
        "The size at which [a file of the log](../howto/log.md#json-and-files) is"
        " renamed and a new one begins.",
        ours=True,
    ),
    Key(
        "canal.log.files",
        "log_files",
        values.integer(1, 1000),
        "How many files are kept of each log, the current one included.",
        ours=True,
    ),
    Key(
        "canal.server.frame.bytes.max",
        "frame_bytes_max",
        values.integer(1024, INT32_MAX, "bytes"),
        "The size of the largest request that is accepted. Before a client has logged"
        " in, the limit is 60 KiB.",
        ours=True,
    ),
)

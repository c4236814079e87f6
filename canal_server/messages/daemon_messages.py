"""Messages of the process: settings, the conf folder, operators' commands, the end."""

from __future__ import annotations

from logging import ERROR, WARNING

from canal_server.messages.message import Message

ADMIN_CONNECTION_FAILED = Message(
    name="admin-connection-failed",
    level=ERROR,
    text="closed the connection of canal-admin at %s because of an internal error",
    meaning="The server met an error that it does not expect while it answered"
    " canal-admin.",
    remedy="Report the traceback that follows the line.",
)

ADMIN_LOGIN_REFUSED = Message(
    name="admin-login-refused",
    level=WARNING,
    text="refused the login of canal-admin at %s: wrong user or password",
    meaning="Another program tried to log in, or canal-admin has other settings than"
    " the server.",
    remedy="Set the same user and password in canal-admin and in `canal.admin.user` and"
    " `canal.admin.passwd`.",
)

ADMIN_PORT_CLOSED = Message(
    name="admin-port-closed",
    level=WARNING,
    text="canal.admin.passwd is not set, or is the password of the files that canal"
    " ships: the port for canal-admin stays closed, as canal.users.file is set; set"
    " another password",
    meaning="Whoever logs in at this port can stop destinations and read logs, whatever"
    " rights the file of users gives. With a password that is public, everybody on the"
    " host could do so.",
    remedy="Set `canal.admin.passwd` to hex(SHA1(SHA1(password))) of another password."
    " If you do not use canal-admin, remove `canal.admin.port`.",
)

ADMIN_PORT_IN_CLEAR_TEXT = Message(
    name="admin-port-in-clear-text",
    level=WARNING,
    text="canal.tls.required is true, but canal.admin.port = %d has no TLS and other"
    " hosts reach it: who is between them and canal-admin can read logs, guess the"
    " password, and stop destinations",
    meaning="The protocol of canal-admin has no TLS. With a password of its own, the"
    " port listens on `canal.ip`, in clear text: commands, states and lines of logs can"
    " be read and changed on the way, and a recorded log-in allows to guess the"
    " password offline.",
    remedy="Remove `canal.admin.port` if you do not use canal-admin. Otherwise put both"
    " on a private network, or [use a tunnel](../howto/canal-admin.md#in-clear-text).",
)

ADMIN_PORT_LIMITED = Message(
    name="admin-port-limited",
    level=WARNING,
    text="canal.admin.passwd is not set, or is the password of the files that canal"
    " ships: the port for canal-admin listens on %s only; set another password",
    meaning="Whoever logs in at this port can stop destinations, and that password is"
    " public.",
    remedy="If canal-admin is on another host, set `canal.admin.passwd` to"
    " hex(SHA1(SHA1(password))) of another password. If you do not use it, remove"
    " `canal.admin.port`.",
)

ADMIN_PORT_UNAVAILABLE = Message(
    name="admin-port-unavailable",
    level=WARNING,
    text="no port for canal-admin: %s",
    meaning="The server runs without this port.",
    remedy="Set another `canal.admin.port`, and restart the server.",
)

ADMIN_SETTINGS_REFUSED = Message(
    name="admin-settings-refused",
    level=ERROR,
    text="canal-admin changed canal.properties to settings that cannot be used; the"
    " previous ones stay in effect: %s",
    meaning="The server keeps running with its previous settings.",
    remedy="Correct the named keys in canal-admin.",
)

ADMIN_SETTINGS_UNAVAILABLE = Message(
    name="admin-settings-unavailable",
    level=WARNING,
    text="cannot get the settings from canal-admin, using the last ones that it sent:"
    " %s",
    meaning="Changes in canal-admin have no effect until it answers again. The server"
    " asks it again at every `canal.auto.scan.interval`; this line is not repeated.",
    remedy="Start canal-admin, or correct `canal.admin.manager`, `canal.admin.user` and"
    " `canal.admin.passwd`.",
)

ALARM_NOT_SENT = Message(
    name="alarm-not-sent",
    level=WARNING,
    text="cannot send an alarm, retrying: %s",
    meaning="The web service or the command of the [alarms](../howto/alarms.md) failed."
    " The alarm is sent again every few seconds; this line is not repeated.",
    remedy="Correct `canal.alarm.webhook.url` or `canal.alarm.command`, or repair the"
    " web service.",
)

ALARM_RAISED = Message(
    name="alarm-raised",
    level=WARNING,
    text="alarm: destination %s: %s: %s",
    meaning="One of the [conditions for an alarm](../howto/alarms.md) has lasted long"
    " enough. A later line says `alarm resolved`.",
    remedy="See what the text says.",
)

ALARMS_FAILED = Message(
    name="alarms-failed",
    level=ERROR,
    text="cannot check the conditions for alarms because of an internal error,"
    " retrying",
    meaning="No alarms are raised or resolved meanwhile. The destinations are not"
    " affected.",
    remedy="Report the traceback that follows the line.",
)

COMMAND_FAILED = Message(
    name="command-failed",
    level=ERROR,
    text="cannot run the command %.100s because of an internal error",
    meaning="A command of an operator (`status`, `position seek`, …) met an error that"
    " the server does not expect. The server is not affected.",
    remedy="Report the traceback that follows the line.",
)

CONF_FOLDER_CHECK_FAILED = Message(
    name="conf-folder-check-failed",
    level=ERROR,
    text="cannot check the settings for changes because of an internal error, retrying",
    meaning="All destinations continue as they are.",
    remedy="Report the traceback that follows the line.",
)

CONF_FOLDER_UNREADABLE = Message(
    name="conf-folder-unreadable",
    level=ERROR,
    text="cannot check the conf folder for changes: %s",
    meaning="The conf folder or a file in it is missing or cannot be read."
    " Destinations continue as they are.",
    remedy="Restore it, or correct its permissions.",
)

CONFIGURATION_WARNING = Message(
    name="configuration-warning",
    level=WARNING,
    text="configuration: %s",
    meaning="A setting has no effect, or has a risk, and the text says why: `not"
    " supported, no effect` names settings of the Java server that do nothing here;"
    " `canal.zkServers shares … with other servers, but canal.instance.tsdb.url is"
    " not a MySQL URL` says that each server of the [cluster](../howto/cluster.md)"
    " keeps its own table history.",
    remedy="Correct or remove the setting. For several servers, give [the"
    " history](../explanation/table-history.md#where-it-is-stored) a MySQL that"
    " all of them use.",
)

CONTROL_SOCKET_FAILED = Message(
    name="control-socket-failed",
    level=ERROR,
    text="cannot accept commands on the control socket, retrying: %s",
    meaning="The process or the machine has run out of file descriptors or memory."
    " Until some are free, commands such as `status` and `stop` do not work; `kill`"
    " does.",
    remedy="Raise the limit of open files, or disconnect clients.",
)

DESCRIPTOR_LIMIT_KEPT = Message(
    name="descriptor-limit-kept",
    level=WARNING,
    text="cannot raise the limit of open files above %d: %s",
    meaning="The process keeps the soft limit that it was started with. Each connected"
    " client needs one descriptor, and each destination about 17.",
    remedy="Raise the soft limit before the start (`LimitNOFILE` of systemd, `ulimit"
    " -n`) if that is not enough.",
)

DESTINATION_SETTINGS_REFUSED = Message(
    name="destination-settings-refused",
    level=ERROR,
    text="destination %s: cannot use its changed settings: %s; %s",
    meaning="The changed `instance.properties` has an error. A running destination"
    " keeps its previous settings.",
    remedy="Correct what the text names. The server rereads the file automatically.",
)

HTTP_CONNECTION_REFUSED = Message(
    name="http-connection-refused",
    level=WARNING,
    text="%s",
    meaning="There are too many connections at the port of the page or at the one for"
    " metrics, all together or from one address, and the text says which one was"
    " refused or closed. Connections that ask nothing are closed first, the oldest of"
    " the address that has the most of them, so that those of others are still"
    " answered. Logged once a minute for an address.",
    remedy="Find out what opens so many connections at that address. Where many people"
    " or programs come by one proxy, let it reuse its connections. See"
    " [`canal.server.connections.per.address.max`]"
    "(configuration.md#canalserverconnectionsperaddressmax).",
)

HTTP_PORT_UNAVAILABLE = Message(
    name="http-port-unavailable",
    level=WARNING,
    text="cannot open the port of the page and the REST interface, %s: %s; the server"
    " continues without it",
    meaning="Another process uses the port, often another canal-server on this host, or"
    " the address is not one of this host.",
    remedy="Set `canal.http.port` to a free port, or to -1 for none, and restart.",
)

HTTP_REFUSALS_REPEATED = Message(
    name="http-refusals-repeated",
    level=WARNING,
    text="%d more refusals for %s within %.0f s; the last one: %s",
    meaning="More connections from the same address were refused or closed. Only the"
    " first one in a minute is logged; this line summarizes the others.",
    remedy="As for [http-connection-refused](#http-connection-refused).",
)

HTTP_REQUEST_FAILED = Message(
    name="http-request-failed",
    level=ERROR,
    text="cannot answer the HTTP request %.200s because of an internal error",
    meaning="The request was answered with status 500. The server is not affected.",
    remedy="Report the traceback that follows the line.",
)

METRICS_ARE_OPEN = Message(
    name="metrics-are-open",
    level=WARNING,
    text="anyone who can reach port %d at %s can read the metrics; set"
    " canal.users.file, or canal.metrics.ip to an address that only Prometheus reaches",
    meaning="The port for metrics listens beyond the loopback interface and asks for no"
    " login. Metrics have the names of destinations, ids and lags of clients, but no"
    " data. `canal.passwd` and `canal.http.user` do not close this port. Where"
    " `canal.metrics.ip` is not set, it is that of `canal.ip`.",
    remedy="Use a [file of users](../howto/users.md), in which a user may observe"
    " destinations, or set `canal.metrics.ip`. `canal.anonymous.enable = true` says"
    " that everybody may read everything.",
)

METRICS_FAILED = Message(
    name="metrics-failed",
    level=ERROR,
    text="cannot answer a request for metrics because of an internal error",
    meaning="Prometheus received status 500. The server is not affected.",
    remedy="Report the traceback that follows the line.",
)

METRICS_PORT_UNAVAILABLE = Message(
    name="metrics-port-unavailable",
    level=WARNING,
    text="canal.metrics.pull.port: cannot listen on %s for metrics: %s; the server"
    " continues without them",
    meaning="Another process uses the port, or the address is not one of this host.",
    remedy="Give each server of a host its own `canal.metrics.pull.port`, or set -1.",
)

OPEN_ALARMS_NOT_STORED = Message(
    name="open-alarms-not-stored",
    level=WARNING,
    text="cannot write %s, so the next run does not know the open alarms: %s",
    meaning="The data folder is full or cannot be written to. Alarms are raised,"
    " resolved and sent as before, but those that are open when the server ends are"
    " never resolved. This line is not repeated.",
    remedy="Free space, or correct the permissions of `canal.file.data.dir`.",
)

OPEN_ALARMS_UNREADABLE = Message(
    name="open-alarms-unreadable",
    level=WARNING,
    text="cannot read the open alarms of the last run in %s: %s",
    meaning="The file is damaged, or belongs to another user. It is replaced with the"
    " next alarm. What was open is not resolved, and is raised again if it lasts.",
    remedy="Resolve those alarms where they were sent to.",
)

PAGE_IS_OPEN = Message(
    name="page-is-open",
    level=WARNING,
    text="anyone who can reach port %d at %s can read the page and the REST interface;"
    " set canal.http.user and canal.http.passwd, or canal.users.file, or canal.http.ip"
    " to an address that only operators reach",
    meaning="The port listens beyond the loopback interface and asks for no login. It"
    " shows the names of hosts, tables and columns, statements that change tables with"
    " the values in them, and errors. Tails and actions are refused.",
    remedy="Set [a login](../howto/page.md#who-may-use-it), or `canal.http.ip`."
    " `canal.anonymous.enable = true` says that everybody may read everything.",
)

STAGE_STOP_FAILED = Message(
    name="stage-stop-failed",
    level=ERROR,
    text="the %s failed during shutdown: %s",
    meaning="A part of the server failed while it stopped. The other parts were"
    " stopped.",
    remedy="Fix the cause given in the text.",
)

STAGE_STOP_TIMED_OUT = Message(
    name="stage-stop-timed-out",
    level=ERROR,
    text="the %s did not stop in time",
    meaning="A part of the server was still busy when the shutdown timed out.",
    remedy="Nothing is lost: clients receive their last acked changes again. If it"
    " happens at every stop, look in the log for what it waits for.",
)

SUBSCRIPTION_REMOVED = Message(
    name="subscription-removed",
    level=WARNING,
    text="destination %s: an operator removed subscription %s",
    meaning="`canal-server subscriptions remove` was run.",
)

THROUGHPUT_FAILED = Message(
    name="throughput-failed",
    level=ERROR,
    text="cannot measure the throughput because of an internal error, retrying",
    meaning="The plots of the page have a gap. The destinations are not affected.",
    remedy="Report the traceback that follows the line.",
)

TIME_ZONE_UNKNOWN = Message(
    name="time-zone-unknown",
    level=WARNING,
    text="TZ=%s is no time zone of this machine: UTC is used",
    meaning="The environment variable `TZ` is neither the name of a zone nor a rule."
    " TIMESTAMP columns, and the times of the log, are written in UTC.",
    remedy="Set `TZ` to a name that `timedatectl list-timezones` lists, or to `UTC`,"
    " and restart the server. A container may need its package `tzdata`.",
)

"""Messages of the server for clients: connections, requests, refusals."""

from __future__ import annotations

from logging import ERROR, WARNING

from canal_server.messages.message import Message

ACCEPT_FAILED = Message(
    name="accept-failed",
    level=ERROR,
    text="cannot accept client connections, retrying: %s",
    meaning="The process or the machine has run out of file descriptors, memory or"
    " threads. Connected clients are still served.",
    remedy="Raise the limit of open files (`LimitNOFILE` of systemd, `ulimit -n`), or"
    " disconnect clients.",
)

ACCEPT_LOOP_FAILED = Message(
    name="accept-loop-failed",
    level=ERROR,
    text="no more clients are accepted because of an internal error; restart"
    " canal-server",
    meaning="The thread that accepts clients ended with the error that follows the"
    " line.",
    remedy="Restart canal-server, and report the traceback.",
)

CERTIFICATE_WATCH_FAILED = Message(
    name="certificate-watch-failed",
    level=ERROR,
    text="cannot look for certificates that expire because of an internal error",
    meaning="The server met an error that it does not expect. It tries again after a"
    " minute; nothing else is affected.",
    remedy="Report the traceback that follows the line.",
)

CLIENT_CONNECTION_FAILED = Message(
    name="client-connection-failed",
    level=ERROR,
    text="closed the connection of %s because of an internal error",
    meaning="The server met an error that it does not expect while it served this"
    " client. Other clients are not affected.",
    remedy="Report the traceback that follows the line. The client can connect again.",
)

CLIENT_MISSED_ENTRIES = Message(
    name="client-missed-entries",
    level=WARNING,
    text="client %d of %s has acked up to %s, but the oldest entries in the ring begin"
    " after %s: the client misses the entries in between that match its filter",
    meaning="The client had unsubscribed, and the ring moved on when the other clients"
    " acked.",
    remedy="Disconnect without unsubscribing, see [how a subscription"
    " ends](../howto/unsubscribe-a-client.md).",
)

CLIENT_NOT_SERVED = Message(
    name="client-not-served",
    level=WARNING,
    text="cannot serve the client at %s: %s",
    meaning="The client disconnected before it was served, or no thread could be"
    " started for it.",
    remedy="Nothing for a client that disconnected; otherwise raise the limit of"
    " threads.",
)

CLIENT_REFUSALS_REPEATED = Message(
    name="client-refusals-repeated",
    level=WARNING,
    text="%d more refusals for %s within %.0f s; the last one: %s",
    meaning="The server refused more from the same address. Only the first refusal in a"
    " minute is logged; this line summarizes the others.",
    remedy="As for [client-refused](#client-refused).",
)

CLIENT_REFUSED = Message(
    name="client-refused",
    level=WARNING,
    text="%s",
    meaning="The server refused a connection or a request of a client, and the text"
    " names the client and the reason: `auth failed for user …`, `refused …: …"
    " clients are connected, the limit`, or one of the [answers to"
    " clients](#answers-to-clients). `canal-server unsubscribe` begins with an ack, so"
    " that its refusal may be `refused the ack of client …`.",
    remedy="Fix the cause given in the text. `refused …: … the limit`: raise"
    " `canal.server.connections.max` or `canal.server.connections.per.address.max`,"
    " or disconnect clients. `… has not logged in`: find out who opens connections"
    " without a login.",
)

REQUEST_FAILED = Message(
    name="request-failed",
    level=WARNING,
    text="cannot answer %s: %s",
    meaning="The server could not do what a client asked for, for instance because the"
    " cursors cannot be stored now. The client received the reason too.",
    remedy="Fix the cause given in the text. The client can try again.",
)

SERVER_IS_OPEN = Message(
    name="server-is-open",
    level=WARNING,
    text="canal.ip, canal.user and canal.passwd are empty: anyone who can reach port %d"
    " of this host can read all tables; set a password, or set canal.ip to an"
    " address that only clients can reach, or canal.anonymous.enable to true if"
    " everybody may",
    meaning="The port serves anyone who can reach it.",
    remedy="[Set a password](../howto/security.md), or `canal.ip`. If everybody may"
    " read, set `canal.anonymous.enable` to `true`.",
)

TLS_CERTIFICATE_EXPIRES = Message(
    name="tls-certificate-expires",
    level=WARNING,
    text="the certificate %s %s at %s",
    meaning="From then on the other side refuses to connect: clients of this server, or"
    " the source, if it is the certificate that a destination shows. One that a source"
    " shows is refused by this server with `sslMode` `VERIFY_CA` or `VERIFY_IDENTITY`."
    " The line is logged at the start and each day, from"
    " `canal.tls.expiry.warning.days` (30) before.",
    remedy="Replace the files; the server reads them again without a restart. If it is"
    " the certificate of a source, replace it there (`ALTER INSTANCE RELOAD TLS`, in"
    " MariaDB `FLUSH SSL`); the next connection sees it.",
)

AUDIT_WRITE_FAILED = Message(
    name="audit-write-failed",
    level=ERROR,
    text="cannot write the audit file %s: %s",
    meaning="Events since then are missing in the file. The server goes on, and tries"
    " again with each event; this is logged once in ten minutes.",
    remedy="Make room on the disk, or correct the permissions of the folder.",
)

USERS_RELOAD_FAILED = Message(
    name="users-reload-failed",
    level=ERROR,
    text="the file of users changed and cannot be used, the earlier users and rights"
    " stay in force: %s",
    meaning="The file of `canal.users.file` was replaced by an invalid one, or is"
    " unreadable. The server tries again when it changes again.",
    remedy="Correct what the line names.",
)

USERS_WATCH_FAILED = Message(
    name="users-watch-failed",
    level=ERROR,
    text="cannot check the file of users for changes because of an internal error",
    meaning="A right that was taken away ends its sessions only once somebody logs in."
    " The check is repeated each second.",
    remedy="Report the error with its traceback. Restart the server to apply changes.",
)

TLS_RELOAD_FAILED = Message(
    name="tls-reload-failed",
    level=ERROR,
    text="the files of the TLS certificate changed and cannot be used; the previous"
    " certificate stays in use: %s",
    meaning="The files were replaced by others that do not belong together, or are"
    " unreadable. The server tries again when they change again.",
    remedy="Correct the file that the line names.",
)

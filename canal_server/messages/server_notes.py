"""Notes on errors of cursors, clusters and commands, and on answers to clients."""

from __future__ import annotations

from typing import Final

from canal_server.messages.note import Note

SERVER_ERRORS: Final = (
    Note(
        error="MetaStoreError",
        fragments=("is damaged (…) and … cannot be read either",),
        meaning="Both copies of the cursors are damaged. The destination does not"
        " start.",
        remedy="Restore a copy, or remove both files: clients then start without"
        " cursors.",
    ),
    Note(
        error="MetaStoreError",
        fragments=("in ZooKeeper is damaged",),
        meaning="A node holds something that is not a position. The destination does"
        " not start.",
        remedy="Correct the node, or delete it: that client then starts without a"
        " cursor.",
    ),
    Note(
        error="MetaStoreError",
        fragments=("was changed by another client and is not overwritten",),
        meaning="A second server runs the destination, or somebody moved a cursor.",
        remedy="Stop one of the two servers. To use the content of the node, restart"
        " this one.",
    ),
    Note(
        error="MetaStoreError",
        fragments=("list of subscriptions",),
        meaning="`subscriptions.sqlite` cannot be read. The destination does not"
        " start.",
        remedy="Restore a copy, or move the file away: readers then resume from their"
        " own checkpoints.",
    ),
    Note(
        error="LeaseLost",
        fragments=("this server may no longer run",),
        meaning="Cursors could not be written after the lease was lost.",
        remedy="Nothing: clients receive their last acked changes again.",
    ),
    Note(
        error="ZooKeeperUnavailable",
        fragments=("no answer from ZooKeeper at",),
        meaning="No server can get the right to run the destination, or learn that"
        " another one has it. A server that ran it has stopped it, unless it can still"
        " reach ZooKeeper: [when ZooKeeper does not"
        " answer](../howto/cluster.md#when-zookeeper-does-not-answer).",
        remedy="Start ZooKeeper, restore the network to it, or correct"
        " `canal.zkServers`. The destination then continues by itself.",
    ),
    Note(
        error="ZooKeeperError",
        fragments=("does not exist in ZooKeeper",),
        meaning="The path after the servers in `canal.zkServers` does not exist.",
        remedy="Create it, or correct the setting.",
    ),
    Note(
        error="ConfigError",
        fragments=("clients cannot read an IPv6 address from ZooKeeper",),
        meaning="Clients split an address at its first colon.",
        remedy="Set `canal.register.ip` to an IPv4 address or a name.",
    ),
    Note(
        error="ConfigError",
        fragments=("cannot listen on",),
        meaning="Another program uses the port, or the address does not belong to this"
        " machine.",
        remedy="Change `canal.ip` or `canal.port`.",
    ),
    Note(
        error="ControlError",
        fragments=("cannot use the data folder",),
        meaning="The user that runs canal-server may not write there.",
        remedy="Correct the permissions, or set another `canal.file.data.dir`.",
    ),
    Note(
        error="ControlError",
        fragments=("another server … runs with the data folder",),
        meaning="Two servers have the same `canal.file.data.dir`.",
        remedy="Stop one of them, or set another folder.",
    ),
    Note(
        error="ControlError",
        fragments=("no server runs with the data folder",),
        meaning="`status`, `stop`: no server is running, or it has another conf"
        " folder.",
        remedy="Start the server, or set `--conf` to its folder.",
    ),
    Note(
        error="ControlError",
        fragments=(
            "the server of … did not answer within",
            "the server of … does not answer",
            "the server of … still runs after",
        ),
        meaning="The process is paused (SIGSTOP; the text names it), the machine is"
        " frozen, or stopping takes long.",
        remedy="`kill -CONT` that process, or kill it. A requested stop is then carried"
        " out; in a cluster another server has taken over in the meantime.",
    ),
    Note(
        error="ControlError",
        fragments=("destination … is …, try again",),
        meaning="`position seek`: the destination is starting or stopping.",
        remedy="Retry in a moment.",
    ),
    Note(
        error="ControlError",
        fragments=("destination … is run by …: run this command",),
        meaning="`position seek`, `subscriptions remove`: another server of the"
        " cluster runs the destination.",
        remedy="Run the command there. A server that was killed still counts until its"
        " session ends; retry then.",
    ),
    Note(
        error="ControlError",
        fragments=("subscription … is read by query …: end that first",),
        meaning="`subscriptions remove`: the subscription is in use.",
        remedy="Stop that query, or keep the subscription.",
    ),
)

CLIENT_ANSWERS: Final = (
    Note(
        fragments=("auth failed for user",),
        meaning="The name, the password or the certificate is none of a user.",
        remedy="Use the values of `canal.user` and `canal.passwd`, or a user that"
        " `canal-server user list` prints. A user [with a"
        " certificate](../howto/users.md#log-in-with-a-certificate) needs exactly the"
        " name in the text.",
    ),
    Note(
        fragments=("is not exist , please check",),
        meaning="The batch is no longer open: the client's cursor was moved, the"
        " destination or the server was restarted, or another program uses the same"
        " client id.",
        remedy="Nothing: the client receives the changes again. If it happens again and"
        " again, give each program a client id of its own.",
    ),
    Note(
        fragments=("can't find destination:",),
        meaning="The server has no destination of that name.",
        remedy="Use a name from `canal.destinations`.",
    ),
    Note(
        fragments=("should subscribe first",),
        meaning="The client asked for changes before it subscribed.",
        remedy="Subscribe after each connect.",
    ),
    Note(
        fragments=("is not the oldest open one",),
        meaning="The client acked batches in another order than it received them.",
        remedy="Ack batches in the order in which they were received.",
    ),
    Note(
        fragments=("client … of … needs",),
        meaning="The source no longer has the position of the client. A client with a"
        " waiting get receives the answer too; other clients are served.",
        remedy="See [a client whose position is purged](../howto/purged-positions.md).",
    ),
    Note(
        fragments=("regular expression …: ",),
        meaning="The filter is not a valid expression; the text says where.",
        remedy="Correct the filter.",
    ),
    Note(
        fragments=(
            "characters exceed the limit of",
            "too large with its repetitions expanded",
            "the filters of all clients of … are too large",
        ),
        meaning="The filter is too long or too costly.",
        remedy="Simplify it; see [costly filters](../explanation/costly-filters.md).",
    ),
    Note(
        fragments=("client … cannot subscribe: … has … clients, the limit is",),
        meaning="The destination has the maximum number of clients.",
        remedy="`unsubscribe` clients that no longer exist, or raise"
        " `canal.instance.clients.max`.",
    ),
    Note(
        fragments=("has not yet executed",),
        meaning="A reader has received more than the current source has executed. The"
        " request is repeated until the source has it.",
        remedy="Check the replication; if the server is the source now, run `RESET"
        " REPLICA ALL`.",
    ),
    Note(
        fragments=("subscriptions exist, the limit",),
        meaning="Programs keep creating subscriptions with new names, and the limit is"
        " reached.",
        remedy="[Remove](../howto/remove-subscriptions.md) what nobody reads; give"
        " each query one fixed name.",
    ),
)

INFORMATION: Final = (
    Note(
        fragments=("destination %s is run by this server", "is run by"),
        meaning="A server of the [cluster](../howto/cluster.md) runs the destination."
        " If it is another one, this server takes over when that one ends. If it is"
        " the address of this server, the server was killed before, and its old"
        " session lasts until its timeout.",
        is_foreign=True,
    ),
    Note(
        fragments=("epoch … of ranged reads",),
        meaning="Ranged reads know the source as this server and this binlog. Above 0:"
        " the source was replaced, or its binlog was reset. Earlier positions are"
        " found by their GTID sets; without GTIDs, or after a reset, they are"
        " refused with code 409.",
        remedy="Nothing, or recreate the refused subscriptions.",
        is_foreign=True,
    ),
    Note(
        fragments=("continues without client",),
        meaning="A client has been disconnected for longer than"
        " `canal.instance.cursor.pin.seconds`, and the ring is full.",
        remedy="Nothing: [it misses nothing](../howto/lagging-clients.md) as long as"
        " the source keeps its binlog.",
    ),
    Note(
        fragments=("destination %s was removed",),
        meaning="[The conf folder was changed](../howto/destinations.md). `was added`"
        " and `was changed` mean the same.",
    ),
)

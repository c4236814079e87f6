"""Messages of a cluster: ZooKeeper, leases, the address for clients."""

from __future__ import annotations

from logging import ERROR, WARNING

from canal_server.messages.message import Message

ADDRESS_IS_LOOPBACK = Message(
    name="address-is-loopback",
    level=WARNING,
    text="this host has no address that other hosts can reach, so clients are given"
    " %s; set canal.register.ip",
    meaning="The only network interface is the loopback interface.",
    remedy="Set `canal.register.ip` to an address that clients can reach.",
)

DESTINATION_NOT_RUNNABLE = Message(
    name="destination-not-runnable",
    level=ERROR,
    text="destination %s cannot run here: %s",
    meaning="ZooKeeper refuses a request that the lease of the destination needs. The"
    " server retries.",
    remedy="Fix the cause given in the text, for instance the ACL of the node.",
)

SESSION_CHECK_FAILED = Message(
    name="session-check-failed",
    level=ERROR,
    text="cannot check the session with ZooKeeper because of an internal error,"
    " retrying",
    meaning="While it fails, the leases of this server expire and its destinations step"
    " down.",
    remedy="Report the traceback that follows the line.",
)

SESSION_NOT_REMEMBERED = Message(
    name="session-not-remembered",
    level=WARNING,
    text="cannot write %s, so a restart after a kill waits until the session with"
    " ZooKeeper ends: %s",
    meaning="The data folder is full or cannot be written to. A regular stop and start"
    " is not affected.",
    remedy="Free space, or correct the permissions of `canal.file.data.dir`.",
)

ZOOKEEPER_NODE_LEFT = Message(
    name="zookeeper-node-left",
    level=WARNING,
    text="cannot delete a node in ZooKeeper; it is deleted when the session ends: %s",
    meaning="ZooKeeper did not answer.",
)

ZOOKEEPER_SESSION_DISTURBED = Message(
    name="zookeeper-session-disturbed",
    level=WARNING,
    text="the session with ZooKeeper at %s is %s",
    meaning="The connection to ZooKeeper was lost (`suspended`), or ZooKeeper ended the"
    " session (`lost`). Destinations keep running as long as their leases are"
    " certain.",
    remedy="Restore ZooKeeper or the network to it. The server reconnects"
    " automatically.",
)

ZOOKEEPER_SESSION_LEFT = Message(
    name="zookeeper-session-left",
    level=WARNING,
    text="cannot close the session with ZooKeeper; it ends after its timeout: %r",
    meaning="ZooKeeper did not answer during the shutdown. Other servers take over"
    " when the session has expired.",
)

ZOOKEEPER_UNREACHABLE = Message(
    name="zookeeper-unreachable",
    level=WARNING,
    text="waiting for ZooKeeper at %s",
    meaning="ZooKeeper does not answer, or `canal.zkServers` names another address."
    " The destination starts by itself when it answers, and clients wait until it"
    " does.",
    remedy="Start ZooKeeper, or correct `canal.zkServers`.",
)

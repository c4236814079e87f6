"""Who makes requests, and the texts of errors about them, as clients know them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from canal_server.errors import ClientError
from canal_server.model.quoted import printable
from canal_server.protocol import server_session

if TYPE_CHECKING:
    from canal_server.model.identity import ClientIdentity


def identity_of(request: server_session.Request) -> ClientIdentity | None:
    """Return the client that a request is about, None: it names none."""
    if isinstance(request, server_session.Login):
        return request.subscribe
    found: ClientIdentity | None = getattr(request, "identity", None)
    return found


def log_text(request: server_session.Request) -> str:
    """Return a request as text for the log: the operation and the client."""
    kind = type(request).__name__.lower().replace("acknowledge", "ack")
    identity = identity_of(request)
    if identity is None:
        return f"a {kind}"
    destination = printable(identity.destination)
    return f"the {kind} of client {identity.client_id} of {destination}"


def name_of(identity: ClientIdentity) -> str:
    """Return a client as canal's texts name it."""
    return (
        f"[destination={printable(identity.destination)},clientId={identity.client_id}]"
    )


def not_started(identity: ClientIdentity) -> ClientError:
    """Return the error of a request to a destination that does not run."""
    return ClientError(
        f"destination:{printable(identity.destination)} should start first"
    )


def instance_ended(identity: ClientIdentity) -> ClientError:
    """Return the error of a request after a restart, beyond the protocol's words."""
    return ClientError(
        f"{not_started(identity)}: it was restarted after the last request of this"
        " connection; reconnect or repeat the request; entries that were not acked, or"
        " whose ack was not stored yet, are delivered again"
    )


def no_such_batch(verb: str, identity: ClientIdentity, batch_id: int) -> ClientError:
    """Return the error of an ack or rollback of a batch that is not open."""
    return ClientError(
        f"{verb} error , clientId:{identity.client_id} batchId:{batch_id} "
        "is not exist , please check"
    )

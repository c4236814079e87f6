"""The keys of TLS on the server's ports."""

from __future__ import annotations

from canal_server.config import values
from canal_server.config.keys.setting import Key

TLS_KEYS = (
    Key(
        "canal.tls.certFile",
        "tls.cert_file",
        values.folder,
        "The server's certificate, a PEM file, with those of intermediate authorities"
        " after it. Turns on [TLS](../howto/tls.md) on all ports. The file is read"
        " again when it changes. Empty means no TLS.",
        ours=True,
    ),
    Key(
        "canal.tls.keyFile",
        "tls.key_file",
        values.folder,
        "The private key of the certificate, a PEM file without a pass phrase. Empty"
        " means that it is in `canal.tls.certFile`.",
        ours=True,
    ),
    Key(
        "canal.tls.required",
        "tls.required",
        values.boolean,
        "`true` refuses clients that do not use TLS. Otherwise the port for clients"
        " accepts both. The port for canal-admin has [no"
        " TLS](../howto/canal-admin.md#in-clear-text) in either case.",
        ours=True,
    ),
    Key(
        "canal.tls.clientCaFile",
        "tls.client_ca_file",
        values.folder,
        "The certificates of the authorities that sign the certificates of clients, a"
        " PEM file.",
        ours=True,
    ),
    Key(
        "canal.tls.clientCertificates",
        "tls.client_certificates",
        values.client_certificates,
        "Whether clients that use TLS must have a certificate of an authority in"
        " `canal.tls.clientCaFile`: `none` does not ask for one, `optional` refuses"
        " invalid ones, `required` refuses clients without one. On the port for clients"
        " only.",
        ours=True,
    ),
    Key(
        "canal.tls.expiry.warning.days",
        "tls.expiry_warning_days",
        values.integer(0, 3650, "days"),
        "From how many days before a certificate expires on there is [a warning each"
        " day](../howto/tls.md#before-a-certificate-expires): those of this server, and"
        " those of the sources and of clients at the sources. 0 warns of expired ones"
        " only.",
        ours=True,
    ),
    Key(
        "canal.http.tls",
        "tls.http",
        values.boolean,
        "`false` keeps the port of the page in clear text, for example behind a proxy"
        " on the same host.",
        ours=True,
    ),
    Key(
        "canal.metrics.tls",
        "tls.metrics",
        values.boolean,
        "`false` keeps the port for metrics in clear text.",
        ours=True,
    ),
)

"""The keys for settings that canal-admin hands out.

They are read from the local files alone, before anything is fetched.
"""

from __future__ import annotations

from canal_server.config import values
from canal_server.config.keys.setting import Key

MANAGER_KEYS = (
    Key(
        "canal.admin.manager",
        "manager.address",
        values.manager_address,
        "The address of a [canal-admin that hands out the"
        " settings](../howto/canal-admin.md#settings-from-canal-admin). Empty means"
        " that all settings are in the conf folder.",
        secret=True,  # somebody may write a password into it
    ),
    Key(
        "canal.admin.register.auto",
        "manager.register",
        values.boolean,
        "`true` adds this server to those that canal-admin knows, if it is missing"
        " there.",
    ),
    Key(
        "canal.admin.register.cluster",
        "manager.cluster",
        values.text,
        "The cluster of canal-admin that a server is added to. Empty means none.",
    ),
    Key(
        "canal.admin.register.name",
        "manager.name",
        values.text,
        "The name under which a server is added. Empty means the name of the host.",
    ),
)

"""All keys that are served, as tables.

The keys that are only recognized are in `canal_server.config.unserved`.
"""

from __future__ import annotations

from canal_server.config.keys.filter_keys import FILTER_KEYS
from canal_server.config.keys.history_keys import TABLE_META_KEYS
from canal_server.config.keys.manager_keys import MANAGER_KEYS
from canal_server.config.keys.mode_keys import (
    DESTINATION_MODES,
    HISTORY_MODES,
    SERVER_MODES,
    SOURCE_MODES,
)
from canal_server.config.keys.queue_keys import QUEUE_KEYS, ROUTING_KEYS
from canal_server.config.keys.server_keys import PORT_KEYS
from canal_server.config.keys.setting import Key
from canal_server.config.keys.source_keys import SOURCE_KEYS
from canal_server.config.keys.store_keys import POSITION_KEYS, STORE_KEYS
from canal_server.config.keys.tls_keys import TLS_KEYS

__all__ = ["INSTANCE_KEYS", "MODE_KEYS", "PER_DESTINATION", "SERVER_KEYS", "Key"]

SERVER_KEYS = (*PORT_KEYS, *TLS_KEYS, *MANAGER_KEYS, *QUEUE_KEYS)
INSTANCE_KEYS = (
    *SOURCE_KEYS,
    *FILTER_KEYS,
    *STORE_KEYS,
    *POSITION_KEYS,
    *TABLE_META_KEYS,
    *ROUTING_KEYS,
)

# Keys that decide what is served. Those in PER_DESTINATION also exist as
# canal.instance.<destination>.<word>.
PER_DESTINATION = tuple(
    mode.name.removeprefix("canal.instance.global.") for mode in DESTINATION_MODES
)
MODE_KEYS = tuple(
    mode.name
    for mode in (*SERVER_MODES, *DESTINATION_MODES, *SOURCE_MODES, *HISTORY_MODES)
)

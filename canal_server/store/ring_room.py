"""Whether the ring has room for more entries: limits of entries and of memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from canal_server.config.schema import BatchMode
from canal_server.store.ring import bytes_in_use

if TYPE_CHECKING:
    from collections.abc import Callable

    from canal_server.config.schema import StoreConfig
    from canal_server.core.blocks import BlockPool
    from canal_server.store.ring import Ring


class RingRoom:
    """The limits of one ring; used under the lock of the store."""

    def __init__(
        self,
        ring: Ring,
        pool: BlockPool,
        config: StoreConfig,
        held_elsewhere: Callable[[], int],
    ) -> None:
        """`held_elsewhere` returns bytes of blocks that others than the ring keep."""
        self._ring = ring
        self._pool = pool
        self._config = config
        self._held_elsewhere = held_elsewhere

    def fits(self, count: int) -> bool:
        """Return whether so many entries fit; an empty ring accepts any."""
        ring = self._ring
        if ring.held == 0:
            return True
        if ring.held + count > ring.size or self.blocks_exceed():
            return False
        return (
            self._config.batch_mode == BatchMode.ITEMSIZE
            or ring.held_bytes < ring.size * self._config.memunit
        )

    def blocks_exceed(self) -> bool:
        """Return whether the blocks use more memory than they may."""
        used, limit = bytes_in_use(self._pool), self._config.block_bytes_max
        if used <= limit:  # nearly always; asked for with each chunk
            return False
        # What others hold must not stop the pump.
        return used - self._held_elsewhere() > limit

"""Change data capture for MySQL and MariaDB, compatible with alibaba/canal."""

from __future__ import annotations

__version__ = "0.1.0"

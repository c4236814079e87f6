"""The accounts of the operating system by which local commands run."""

from __future__ import annotations

import os
import pwd


def account_name(uid: int) -> str:
    """Return the name of an account, or its number if it has none here."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:  # as in most containers
        return f"uid {uid}"


def own_account() -> str:
    """Return the account by which this process was started."""
    return account_name(os.getuid())

"""Passwords that are encrypted with the RSA key of a source, without TLS."""

from __future__ import annotations

import itertools


def encrypted_password(password: bytes, salt: bytes, public_key: bytes) -> bytes:
    """Return a password as the SHA-256 plugins of MySQL take it without TLS.

    The password and a zero byte, XORed with the bytes of the salt in turn, are
    encrypted with OAEP. `public_key` is PEM. Raises ValueError for other keys.
    """
    # 8 MB, which most connections do without.
    from cryptography.hazmat.primitives import (  # noqa: PLC0415
        hashes,
        serialization,
    )
    from cryptography.hazmat.primitives.asymmetric import (  # noqa: PLC0415
        padding,
        rsa,
    )

    key = serialization.load_pem_public_key(public_key)
    if not isinstance(key, rsa.RSAPublicKey):
        raise ValueError("not a key of RSA")  # noqa: TRY004  # as for any other key
    message = bytes(a ^ b for a, b in zip(password + b"\0", itertools.cycle(salt)))
    sha1 = hashes.SHA1()  # noqa: S303  # the plugins' choice
    oaep = padding.OAEP(mgf=padding.MGF1(sha1), algorithm=sha1, label=None)
    return key.encrypt(message, oaep)

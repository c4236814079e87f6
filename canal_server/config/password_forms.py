"""Passwords in settings: each may be a value, a file or the output of a command.

The setting `key` has the forms `key.file` and `key.command`. Of forms in several files,
that of the last file counts, and the environment counts most, as for any key; two forms
in one file are an error. How they are read is up to `canal_server.passwords`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from canal_server.config import values
from canal_server.config.conf_paths import anchored
from canal_server.config.problems import find
from canal_server.errors import PasswordError
from canal_server.passwords.druid_password import DEFAULT_PUBLIC_KEY, check_key
from canal_server.passwords.password_file import is_exposed
from canal_server.passwords.password_source import PasswordSource

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from canal_server.config.keys.setting import Key
    from canal_server.config.problems import Problems
    from canal_server.config.substitution import Found, Lookup
    from canal_server.passwords.password_source import Password

FILE: Final = ".file"
COMMAND: Final = ".command"
FORMS: Final = (FILE, COMMAND)  # as they end the name of a key
ENCRYPTED_KEY: Final = "canal.instance.enableDruid"
PUBLIC_KEY: Final = "canal.instance.pwdPublicKey"
PASSWORD_KEY: Final = "canal.instance.dbPassword"  # noqa: S105  # its name


@dataclass(frozen=True, slots=True)
class Given:
    """The form of a password that counts."""

    key: str  # with the form
    found: Found


def form_names(keys: Iterable[Key]) -> list[str]:
    """Return the keys of the forms of all passwords."""
    return [each.name + form for each in keys if each.has_forms for form in FORMS]


def is_given(name: str, lookup: Lookup) -> bool:
    """Return whether a password has a form, even one that cannot be used."""
    return any(lookup.is_set(name + form) for form in ("", *FORMS))


def given(name: str, lookup: Lookup, problems: Problems) -> Given | None:
    """Return the form of a password that counts; reports two in one file.

    None: it is not set, or cannot be resolved, which is reported.
    """
    forms = [
        Given(key, found)
        for key in (name, name + FILE, name + COMMAND)
        if (found := find(lookup, key, problems, secret=True)) is not None
    ]
    if not forms:
        return None
    rank = max(lookup.rank(each.found.origin) for each in forms)
    first, *others = [each for each in forms if lookup.rank(each.found.origin) == rank]
    for other in others:
        problems.add(
            other.found.origin,
            other.key,
            other.found.text,
            f"{first.key} is set as well; remove one of the two",
            secret=True,
        )
    return None if others else first


def read_password(
    key: Key, lookup: Lookup, problems: Problems, conf_dir: Path
) -> object | None:
    """Return the value of a password's field, None: it is not set or was reported.

    A password that is read when it is needed is a PasswordSource, unless it is a value.
    Its file is read here as well, so that what is wrong with it is known at once; its
    command is not run. Other passwords are read here, and are what the key's reader
    makes of them.
    """
    form = given(key.name, lookup, problems)
    if form is None:
        return None
    source = _source(form, key.name, conf_dir, problems)
    if source is None:
        return None
    try:
        if isinstance(source, str):
            return key.read(source)
        if not key.is_late:
            return key.read(source.read())
        if source.file is not None:
            source.read()
    except PasswordError as error:
        problems.add(form.found.origin, error.key, error.value, error.problem)
    except ValueError as error:
        _refuse(problems, form, str(error))
    else:
        return source
    return None


def _source(
    form: Given, name: str, conf_dir: Path, problems: Problems
) -> Password | None:
    """Return where a form reads the password from; None was reported."""
    text = form.found.text
    if form.key == name:
        if any("\ud800" <= each <= "\udfff" for each in text):
            _refuse(problems, form, "has characters that are not valid; write others")
            return None
        return text
    try:
        if form.key == name + COMMAND:
            return PasswordSource(form.key, command=values.command(text))
        return PasswordSource(form.key, anchored(conf_dir, values.folder(text)))
    except ValueError:
        # The text of a command line may have a secret in it.
        _refuse(problems, form, "not a path or a command line; check its quotes")
        return None


def decrypting(
    password: object, lookup: Lookup, problems: Problems
) -> tuple[object, list[str]]:
    """Return the password of the source, decrypted if it is encrypted, and warnings.

    One that is read when it is needed is decrypted then. Reports an encrypted one that
    cannot be decrypted.
    """
    switch = find(lookup, ENCRYPTED_KEY, problems)
    if switch is None:
        return password, []
    try:
        is_encrypted = values.boolean(switch.text)
    except ValueError as error:
        problems.add(switch.origin, ENCRYPTED_KEY, switch.text, str(error))
        return password, []
    if not is_encrypted or not password:
        return password, []
    assert isinstance(password, (str, PasswordSource)), "read as a password"
    public = find(lookup, PUBLIC_KEY, problems)
    warnings = []
    if public is None:
        warnings.append(
            f"{switch.origin}: {PUBLIC_KEY} is not set: the password is decrypted with"
            " the key that is part of druid, so it is readable for everybody; make a"
            " pair of keys with druid's ConfigTools, or use"
            f" {PASSWORD_KEY}{FILE}"
        )
    source = (
        PasswordSource(PASSWORD_KEY, text=password)
        if isinstance(password, str)
        else password
    )
    key = public.text if public else DEFAULT_PUBLIC_KEY
    source = replace(source, public_key=key)
    if source.command:
        try:
            check_key(key)
        except ValueError as error:
            problems.add(switch.origin, ENCRYPTED_KEY, switch.text, str(error))
        return source, warnings
    try:
        found = source.read()
    except PasswordError as error:
        form = given(PASSWORD_KEY, lookup, problems)
        origin = form.found.origin if form else switch.origin
        problems.add(origin, error.key, error.value, error.problem)
        return password, []
    return (source if source.file is not None else found), warnings


def exposed_files(keys: Iterable[Key], lookup: Lookup, conf_dir: Path) -> list[str]:
    """Return a warning for each file of a password that everybody can read."""
    warnings = []
    for key in keys:
        if not key.has_forms:
            continue
        found = lookup.find_safely(key.name + FILE)
        if found is None:
            continue
        path = anchored(conf_dir, values.folder(found.text))
        if is_exposed(path):
            warnings.append(
                f"{found.origin}: {key.name}{FILE} = {path}: every user of this host"
                " can read the password; run chmod o-r on it, or set the mode of the"
                " secret (defaultMode in Kubernetes) to 0400"
            )
    return warnings


def _refuse(problems: Problems, form: Given, problem: str) -> None:
    problems.add(form.found.origin, form.key, form.found.text, problem, secret=True)

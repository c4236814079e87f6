"""The forms of passwords in settings: a value, a file, a command; encrypted ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from druid_samples import DEFAULT_TEXT, JAVA_KEY, JAVA_TEXT
from fix_conf import MASTER

from canal_server.config.load import load
from canal_server.errors import ConfigError
from canal_server.passwords.password_source import PasswordSource, revealed

MAIN = "canal.destinations = example\n"
KEY = "canal.instance.dbPassword"
START = "canal.instance.master.address = db:3306\ncanal.instance.dbUsername = canal\n"
HASH = "ab" * 20


def problems_of(conf, environ=None):
    """Return what `load` complains about."""
    with pytest.raises(ConfigError) as caught:
        load(conf, environ or {})
    return caught.value.problems


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """Give a file that has a password."""
    path = tmp_path / "password"
    path.write_text("geheim\n")
    path.chmod(0o600)
    return path


def test_a_file_and_a_command(make_conf, secret):
    """The password of a source is read when it is needed."""
    for line, expected in (
        (f"{KEY}.file = {secret}", PasswordSource(f"{KEY}.file", file=secret)),
        (
            f"{KEY}.command = echo geheim",
            PasswordSource(f"{KEY}.command", command="echo geheim"),
        ),
    ):
        config = load(make_conf(MAIN, example=f"{START}{line}\n"), {})
        assert config.instances[0].source.password == expected
        assert revealed(config.instances[0].source.password) == "geheim"
        assert config.warnings == ()


def test_a_relative_file(make_conf, secret):
    """A relative path starts at the conf folder; `${…}` is replaced in it."""
    conf = make_conf(MAIN, example=f"{START}{KEY}.file = ${{folder:..}}/password\n")
    (instance,) = load(conf, {}).instances
    assert revealed(instance.source.password) == "geheim"


def test_passwords_of_the_server(make_conf, tmp_path):
    """They are read at once, and have the form that their key has."""
    (tmp_path / "hash").write_text(f"*{HASH.upper()}\n")
    (tmp_path / "hash").chmod(0o400)
    conf = make_conf(
        f"{MAIN}canal.user = canal\ncanal.passwd.file = ../hash\n"
        f"canal.http.user = ops\ncanal.http.passwd.command = echo {HASH}\n"
        "canal.alarm.webhook.url.command = echo https://hook.example/token\n"
    )
    server = load(conf, {}).server
    assert (server.passwd, server.http_passwd) == (HASH, HASH)
    assert server.alarm_webhook == "https://hook.example/token"


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("canal.passwd.file = none", "none: cannot read: No such file"),
        ("canal.passwd.command = false", "false: failed with exit status 1"),
        ("canal.passwd.command = echo geheim", "(hidden): not 40 hexadecimal digits"),
        ("canal.passwd.command = echo 'x", "(hidden): not a path or a command line"),
        (f"{KEY}.file = none", "none: cannot read: No such file"),
        (f"{KEY}.file = .", "conf: not a regular file"),
    ],
)
def test_problems_name_key_and_file(make_conf, line, problem):
    """What cannot be read is one sentence with file, key, value and remedy."""
    is_server = line.startswith("canal.passwd")
    conf = make_conf(f"{MAIN}{line}\n", example=MASTER if is_server else START)
    (sentence,) = problems_of(conf)
    key = line.partition(" = ")[0]
    assert sentence.startswith(f"{conf}/canal.properties: {key} = ")
    assert problem in sentence
    assert "geheim" not in sentence


def test_two_forms(make_conf, secret):
    """Two forms in one file are an error that names both."""
    conf = make_conf(MAIN, example=f"{START}{KEY} = geheim\n{KEY}.file = {secret}\n")
    (sentence,) = problems_of(conf)
    assert sentence == (
        f"{conf}/example/instance.properties: {KEY}.file = (hidden): {KEY} is set as"
        " well; remove one of the two"
    )
    conf = make_conf(
        MAIN, example=f"{START}{KEY}.file = {secret}\n{KEY}.command = echo x\n"
    )
    (sentence,) = problems_of(conf)
    assert f"{KEY}.command = (hidden): {KEY}.file is set as well" in sentence


def test_the_nearest_form_counts(make_conf, secret):
    """The environment hides all forms in files, and an instance those of the server."""
    conf = make_conf(f"{MAIN}{KEY} = common\n", example=f"{START}{KEY}.file = {secret}")

    def found(environ=None):
        return revealed(load(conf, environ or {}).instances[0].source.password)

    assert found() == "geheim"
    assert found({"CANAL_INSTANCE_DBPASSWORD": "env"}) == "env"
    assert found({"CANAL_INSTANCE_DBPASSWORD_COMMAND": "echo more"}) == "more"
    sentences = problems_of(
        conf,
        {
            "CANAL_INSTANCE_DBPASSWORD": "geheim",
            "CANAL_INSTANCE_DBPASSWORD_FILE": str(secret),
        },
    )
    assert f"environment: {KEY}.file = (hidden): {KEY} is set as well" in sentences[0]
    assert "geheim" not in str(sentences)


def test_an_empty_value_gives_no_form(make_conf, secret):
    """The shipped empty value does not stand in the way of a file."""
    text = f"{START}{KEY} =\n{KEY}.file = {secret}\n"
    (instance,) = load(make_conf(MAIN, example=text), {}).instances
    assert revealed(instance.source.password) == "geheim"


@pytest.mark.parametrize(
    ("mode", "is_warned"), [(0o644, True), (0o440, False), (0o600, False)]
)
def test_a_file_for_everybody(make_conf, secret, mode, is_warned):
    """A file that every user can read is warned about, with the remedy."""
    for folder in secret.parents:
        if folder != Path("/") and not folder.stat().st_mode & 0o001:
            folder.chmod(folder.stat().st_mode | 0o001)
    secret.chmod(mode)
    conf = make_conf(MAIN, example=f"{START}{KEY}.file = {secret}\n")
    warnings = load(conf, {}).warnings
    assert [f"{KEY}.file = {secret}: every user" in each for each in warnings] == (
        [True] if is_warned else []
    )


def test_an_encrypted_password(make_conf, tmp_path):
    """With druid's switch the value, a file or a command has the encrypted password."""
    (tmp_path / "p").write_text(JAVA_TEXT)
    (tmp_path / "p").chmod(0o400)
    switch = (
        f"canal.instance.enableDruid = true\ncanal.instance.pwdPublicKey = {JAVA_KEY}\n"
    )
    for line in (
        f" = {JAVA_TEXT}",
        ".file = ../p",
        f".command = echo {JAVA_TEXT}",
    ):
        config = load(make_conf(MAIN, example=f"{START}{switch}{KEY}{line}\n"), {})
        assert revealed(config.instances[0].source.password) == "canal"
        assert config.warnings == ()


def test_druids_own_key(make_conf):
    """Without a public key that of druid is used, with a warning."""
    text = f"{START}canal.instance.enableDruid = true\n{KEY} = {DEFAULT_TEXT}\n"
    config = load(make_conf(MAIN, example=text), {})
    assert config.instances[0].source.password == "root"
    (warning,) = config.warnings
    assert "canal.instance.pwdPublicKey is not set" in warning
    assert "readable for everybody" in warning


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        (f"{KEY} = geheim", "set canal.instance.enableDruid to false"),
        (f"{KEY} = {JAVA_TEXT}", "belongs to canal.instance.pwdPublicKey"),
        (
            f"{KEY} = {JAVA_TEXT}\ncanal.instance.pwdPublicKey = retl",
            "not an RSA public key",
        ),
        (
            f"{KEY}.command = echo x\ncanal.instance.pwdPublicKey = retl",
            "enableDruid = true: canal.instance.pwdPublicKey is not an RSA public key",
        ),
        (
            f"{KEY} = x\ncanal.instance.enableDruid = maybe",
            "enableDruid = maybe: not a switch",
        ),
    ],
)
def test_encrypted_passwords_that_cannot_be_used(make_conf, lines, problem):
    """The problem names the setting and the remedy, and does not show the password."""
    text = f"{START}canal.instance.enableDruid = true\n{lines}\n"
    (sentence,) = problems_of(make_conf(MAIN, example=text))
    assert problem in sentence
    assert "geheim" not in sentence
    assert JAVA_TEXT not in sentence


def test_characters_that_cannot_be_sent(make_conf):
    """A half of a pair of characters is refused, not met at the first login."""
    text = f"{START}{KEY} = gehe\\ud800im\n"
    (sentence,) = problems_of(make_conf(MAIN, example=text))
    assert f"{KEY} = (hidden): has characters that are not valid" in sentence


def test_forms_are_known(make_conf):
    """A misspelt form is an unknown key; the forms are none."""
    conf = make_conf(f"{MAIN}canal.passwd.flie = x\n", example=MASTER)
    (warning,) = load(conf, {}).warnings
    assert "did you mean canal.passwd.file?" in warning

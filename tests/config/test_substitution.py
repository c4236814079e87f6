"""Finding the text of a key."""

from __future__ import annotations

import pytest

from canal_server.config.properties import Properties
from canal_server.config.substitution import (
    ENVIRONMENT,
    Found,
    InstanceLookup,
    Lookup,
    UnresolvableError,
    environment_name,
)


def server(file, environ=None):
    """Return a look-up for keys of the server."""
    return Lookup(environ or {}, [Properties("main", file)])


def instance(own, environ=None, main=None):
    """Return a look-up for keys of the instance `example`."""
    files = [Properties("main", main or {}), Properties("own", own)]
    fixed = {"canal.instance.destination": "example"}
    return InstanceLookup(environ or {}, files, fixed=fixed)


class TestServerKeys:
    """Keys of the server."""

    def test_values_are_trimmed(self):
        """Blanks around a value do not count."""
        assert server({"canal.port": "  1 "}).find("canal.port") == Found("1", "main")

    def test_nothing_is_expanded(self):
        """`${…}` in a key of the server is not replaced, and is an error."""
        for text in ("${ZK:localhost}", "${PORT}", "a${}"):
            with pytest.raises(UnresolvableError, match="CANAL_PORT") as error:
                server({"canal.port": text}).find("canal.port")
            assert text.removeprefix("a") in str(error.value)
            assert error.value.origin == "main"
        assert server({"canal.user": "a${b"}).find("canal.user") == Found(
            "a${b", "main"
        )

    def test_the_environment_wins_under_the_dotted_name(self):
        """A variable with the key's own name hides the file."""
        lookup = server({"canal.port": "1"}, {"canal.port": "2"})
        assert lookup.find("canal.port") == Found("2", ENVIRONMENT)

    def test_the_environment_wins_in_capitals(self):
        """A variable in capitals with underscores hides the file as well."""
        lookup = server({"canal.serverMode": "1"}, {"CANAL_SERVERMODE": "2"})
        assert lookup.find("canal.serverMode") == Found("2", ENVIRONMENT)

    def test_the_dotted_variable_wins_over_capitals(self):
        """Of both spellings the original's counts."""
        lookup = server({}, {"canal.port": "1", "CANAL_PORT": "2"})
        assert lookup.find("canal.port") == Found("1", ENVIRONMENT)

    def test_blank_is_missing(self):
        """A blank variable does not hide the file; a blank value counts as missing."""
        lookup = server({"canal.port": "1", "canal.ip": " "}, {"canal.port": " "})
        assert lookup.find("canal.port") == Found("1", "main")
        assert lookup.find("canal.ip") is None


class TestInstanceKeys:
    """Keys of instances."""

    def test_the_later_file_wins(self):
        """instance.properties hides canal.properties, also with a blank value."""
        lookup = instance({"a": "own", "b": ""}, main={"a": "main", "b": "main"})
        assert lookup.find("a") == Found("own", "own")
        assert lookup.find("b") is None

    @pytest.mark.parametrize(
        ("text", "value"),
        [
            ("${b}", "B"),
            ("x${b}y${b}z", "xByBz"),
            ("${none:}", None),
            ("x${none:}y", "xy"),
            ("${blank}", None),
            ("${none:d}", "d"),
            ("${none: d }", "d"),
            ("${none:h:1:2}", "h:1:2"),
            ("${b:d}", "B"),
            ("${blank:d}", "d"),
            ("${none:${b}}", "B"),
            ("${none:${none2:${b}}}", "B"),
            ("${none:a{1,2}}", "a{1,2}"),
            ("${n${o}:d}", "nested"),
            ("${c}", "<B>"),
            ("${canal.instance.destination:}", "example"),
            ("${b", "${b"),
            ("$b {b} }", "$b {b} }"),
            ("${VARIABLE}", "V"),
        ],
    )
    def test_expansion(self, text, value):
        """`${key:default}` is replaced as the original's instances replace it."""
        values = {
            "a": text,
            "b": "B",
            "blank": " ",
            "c": "<${b}>",
            "o": "ested",
            "nested": "nested",
        }
        found = instance(values, {"VARIABLE": "V"}).find("a")
        assert (found and found.text) == value

    @pytest.mark.parametrize(
        ("text", "name"),
        [("${NAME}", "NAME"), ("x${a.b}${b}", "a.b"), ("${none:${NAME}}", "NAME"),
         ("${b${NAME}}", "NAME"), ("${}", ""), ("${c}", "NAME")],
    )  # fmt: skip
    def test_what_is_set_nowhere_is_an_error(self, text, name):
        """A name that is not set anywhere and has no default is reported."""
        lookup = instance({"a": text, "b": "B", "c": "<${NAME}>"}, {"NAME": " "})
        with pytest.raises(UnresolvableError) as error:
            lookup.find("a")
        assert f"${{{name}}} is not set" in str(error.value)
        assert (error.value.origin, error.value.text) == ("own", text)

    def test_variables_are_expanded(self):
        """`${…}` in a variable's value is replaced too."""
        found = instance({"b": "B"}, {"a": "<${b}>"}).find("a")
        assert found == Found("<B>", ENVIRONMENT)

    def test_the_destination_cannot_be_overridden(self):
        """The instance's own name wins over the environment."""
        lookup = instance({}, {"canal.instance.destination": "other"})
        found = lookup.find("canal.instance.destination")
        assert found
        assert found.text == "example"

    def test_a_circle_is_an_error(self):
        """A value that leads back to itself ends in an error that shows the way."""
        lookup = instance({"a": "${b}", "b": "x${c:1}", "c": "${a}"})
        with pytest.raises(UnresolvableError, match="a -> b -> c -> a"):
            lookup.find("a")

    def test_what_was_asked_for_is_remembered(self):
        """Keys that values refer to count as used."""
        lookup = instance({"a": "${canal.my.own:${canal.my.other:}}"})
        lookup.find("a")
        assert {"a", "canal.my.own", "canal.my.other"} <= lookup.used


def test_environment_name():
    """All that a shell's variable cannot hold becomes an underscore."""
    assert environment_name("canal.instance.a-b.lazy") == "CANAL_INSTANCE_A_B_LAZY"

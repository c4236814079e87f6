"""The options of a client, and what its requests are given."""

from __future__ import annotations

import pytest

from canal_server.client import CanalClient


def test_password_is_not_shown():
    """What shows the options, such as a traceback with locals, has no password."""
    assert "a secret" not in repr(CanalClient(password="a secret")._options)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"destination": ""}, "destination is empty"),
        ({"client_id": 40_000}, "client_id = 40000: expected -32768 to 32767"),
        ({"ack": "batch"}, "ack = 'batch': expected \"message\""),
        ({"ack": 0.0}, "ack = 0.0: expected seconds"),
        ({"over_limit": "cut"}, "over_limit = 'cut'"),
        ({"timeout_s": 0}, "timeout_s = 0: expected a number of seconds, more than 0"),
        ({"timeout_s": None}, "timeout_s = None: expected a number of seconds"),
        ({"timeout_s": float("inf")}, "timeout_s = inf: expected a number"),
        ({"tls": 3}, "tls = 3: expected true, false or an ssl.SSLContext"),
        ({"on_connect": 3}, "on_connect = 3: expected a function"),
        ({"host": "a:1:2,b"}, "host = 'a:1:2': expected a name or address"),
        ({"batch_size": -1}, "batch_size = -1"),
        ({"reconnect_for_s": -1}, "reconnect_for_s = -1"),
        ({"host": "a b"}, "host = 'a b': expected a name or address"),
        ({"host": "zk://"}, "host = 'zk://': expected zk://host:port"),
        ({"port": 0}, "port = 0: expected 1 to 65535"),
        ({"port": "11111"}, "port = '11111': expected an integer"),
        ({"timeout_s": "3"}, "timeout_s = '3': expected a number of seconds"),
        ({"ack": True}, "ack = True: expected a number"),
        ({"ack": None}, "ack = None: expected seconds"),
        ({"filter": None}, "filter is of type NoneType: expected a text"),
        ({"time_zone": "Europe/Berlin"}, "time_zone = 'Europe/Berlin': expected a tz"),
        ({"load_json": "json"}, "load_json = 'json': expected a function"),
    ],
)
def test_invalid_options(options, problem):
    """An option with a value that makes no sense is named, with what is expected."""
    with pytest.raises(ValueError) as caught:  # noqa: PT011  # matched below
        CanalClient(**options)
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"batch_size": -5}, "batch_size = -5: expected more than 0"),
        ({"batch_size": 0}, "batch_size = 0: expected more than 0"),
        ({"timeout_s": "x"}, "timeout_s = 'x': expected a number of seconds, 0 or"),
        ({"timeout_s": -1.0}, "timeout_s = -1.0: expected a number of seconds"),
    ],
)
@pytest.mark.parametrize("request_of", ["messages", "get"])
def test_invalid_arguments(client, request_of, options, problem):
    """Requests check what they are given as the constructor does."""
    reader = client()
    reader.connect()
    reader.subscribe()
    with pytest.raises(ValueError) as caught:  # noqa: PT011  # matched below
        next(reader.messages(**options)) if request_of == "messages" else reader.get(
            **options
        )
    assert problem in str(caught.value)

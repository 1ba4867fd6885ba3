"""Whose account a loopback connection comes from: asked of the kernel, or searched; a closed socket is nobody's."""

import os
import socket

import pytest

from rerail.assistant.web import account


def pair(listening, address):
    host, port = address, listening.getsockname()[1]
    client = socket.create_connection((host, port))
    accepted, _ = listening.accept()
    return client, accepted


def listens(family, address):
    try:
        return socket.create_server(
            (address, 0), family=family, dualstack_ipv6=family == socket.AF_INET6
        )
    except (OSError, ValueError) as error:
        pytest.skip(f"no such address here: {error}")


WAYS = [
    (socket.AF_INET, "127.0.0.1", "127.0.0.1"),
    (socket.AF_INET6, "::", "::1"),
    (socket.AF_INET6, "::", "127.0.0.1"),
]


@pytest.mark.parametrize(("family", "bound", "called"), WAYS)
@pytest.mark.parametrize("asked", [True, False], ids=["asked", "searched"])
def test_the_owner_of_the_socket_is_told_until_it_is_closed(
    monkeypatch, family, bound, called, asked
):
    if not asked:
        monkeypatch.setattr(account, "_asked", lambda *_: None)
    with listens(family, bound) as listening:
        client, accepted = pair(listening, called)
        ends = accepted.getpeername()[:2], accepted.getsockname()[:2]
        if asked and account._asked(*ends) is None:
            pytest.skip("the kernel does not answer sock_diag here")
        assert account.is_own_account(*ends)
        monkeypatch.setattr(os, "getuid", lambda: 4321)
        # Root is let in; any other account is not.
        assert account.is_own_account(*ends) is (os.geteuid() == 0)
        client.close()
        # What was closed, or is not there, is shown as root's and belongs to nobody.
        assert not account.is_own_account(*ends)
        accepted.close()
    assert not account.is_own_account(("127.0.0.1", 1), ("127.0.0.1", 2))

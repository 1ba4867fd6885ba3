"""Which account of this machine holds the other end of a loopback connection.

The kernel is asked for the one socket (sock_diag(7), an exact look-up); where it does not answer, /proc/net/tcp
(proc_net_tcp(5)) is searched, which takes long where a machine has many sockets.
"""

from __future__ import annotations

import os
import socket
import struct
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

_SOCK_DIAG_BY_FAMILY, _REQUEST, _ALL_STATES, _NO_COOKIE = 20, 1, 0xFFFFFFFF, 0xFFFFFFFF
_NETLINK_SOCK_DIAG = 4
_HEADER = struct.Struct("=IHHII")  # nlmsghdr: length, type, flags, sequence, port
_UID_AT = (
    _HEADER.size + 4 + 48 + 12
)  # inet_diag_msg: state, socket id, expires, rqueue, wqueue, uid
_NOBODY = -1
"""Of a socket that its process has closed: it has no inode, and the kernel shows it as root's."""
_TESTS = "testclient"
"""What Starlette calls a client without a socket; nobody on a network has this address."""

Address = tuple[str, int]


def is_own_account(client: Address, server: Address) -> bool:
    """Tell whether a loopback connection comes from our own account, or root.

    On a login node that many share, loopback alone keeps nobody out. Where nothing tells, nobody is let in.
    """
    if client[0] == _TESTS:
        return True
    uid = _asked(client, server)
    if uid is None:
        uid = _searched(client[1], server[1])
    return uid in (os.getuid(), 0)


def _asked(client: Address, server: Address) -> int | None:
    """Return who owns the client's socket, or None where the kernel does not say."""
    try:
        ours, theirs = ip_address(client[0]), ip_address(server[0])
        family = socket.AF_INET if ours.version == theirs.version == 4 else socket.AF_INET6
        sides = b"".join(_bytes(one, family) for one in (ours, theirs))
        asked = struct.pack("=BBBBI", family, socket.IPPROTO_TCP, 0, 0, _ALL_STATES)
        asked += struct.pack("!HH", client[1], server[1]) + sides
        asked += struct.pack("=III", 0, _NO_COOKIE, _NO_COOKIE)
        head = _HEADER.pack(_HEADER.size + len(asked), _SOCK_DIAG_BY_FAMILY, _REQUEST, 1, 0)
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as kernel:
            kernel.settimeout(1.0)
            kernel.send(head + asked)
            answer = kernel.recv(8192)
    except (OSError, ValueError, AttributeError):  # no netlink here
        return None
    kind = _HEADER.unpack_from(answer)[1]
    if kind != _SOCK_DIAG_BY_FAMILY or len(answer) < _UID_AT + 8:
        return None
    uid, inode = struct.unpack_from("=II", answer, _UID_AT)
    return uid if inode else _NOBODY


def _bytes(address: IPv4Address | IPv6Address, family: int) -> bytes:
    if address.version == 4 and family == socket.AF_INET6:
        return IPv6Address(f"::ffff:{address}").packed
    return address.packed.ljust(16, b"\0")


def _searched(port: int, served: int) -> int | None:
    theirs, ours = f":{port:04X}", f":{served:04X}"
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            rows = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for row in rows:
            fields = row.split()
            # The socket of the client: its own end is the client's port, the other one ours.
            if fields[1].endswith(theirs) and fields[2].endswith(ours):
                return int(fields[7]) if int(fields[9]) else _NOBODY
    return None

"""Takes a port to listen on: the one that is asked for, or the next free one; and says who has it otherwise."""

from __future__ import annotations

import errno
import os
import socket
import sys
from dataclasses import dataclass

from otel_train.errors import OtelTrainError

# Not those of TensorBoard (6006), Jupyter (8888), MLflow (5000), Gradio (7860), Streamlit (8501) or the stack.
DEFAULT_PORT = 6160
TRIED_PORTS = 40


class ListenError(OtelTrainError):
    """No page can be served at this address; its text says why and what would work."""


@dataclass(frozen=True, slots=True)
class Listener:
    """A socket that is bound, and what is to be said about how it came to its port."""

    socket: socket.socket
    host: str
    port: int
    notice: str = ""


def take_port(host: str, port: int | None) -> Listener:
    """Bind host and port. Port 0 is any; None is the default one, or the next that is free.

    ListenError where the host is not this machine's, or the port is in use (it names the process) or not allowed.
    """
    family, address = _resolved(host)
    if port is not None:
        try:
            bound = _bound(family, address, port)
        except OSError as fault:
            raise ListenError(_why(fault, host, address, port)) from None
        return Listener(bound, host, bound.getsockname()[1])
    for candidate in range(DEFAULT_PORT, DEFAULT_PORT + TRIED_PORTS):
        try:
            bound = _bound(family, address, candidate)
        except OSError as fault:
            if fault.errno in (errno.EADDRINUSE, errno.EACCES):
                continue
            raise ListenError(_why(fault, host, address, candidate)) from None
        notice = ""
        if candidate != DEFAULT_PORT:
            notice = f"port {DEFAULT_PORT} is in use{_by(DEFAULT_PORT)}: taking {candidate}"
        return Listener(bound, host, candidate, notice)
    last = DEFAULT_PORT + TRIED_PORTS - 1
    raise ListenError(f"all ports from {DEFAULT_PORT} to {last} are in use: choose another with --port, or --port 0")


def _resolved(host: str) -> tuple[socket.AddressFamily, str]:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (socket.gaierror, UnicodeError) as fault:
        why = fault.strerror if isinstance(fault, socket.gaierror) else "it is no host's name"
        raise ListenError(f"--host {host!r} is not known here ({why}): use 127.0.0.1, or 0.0.0.0 for all") from None
    # Of localhost's two addresses the one that everybody can reach.
    family, _, _, _, address = min(found, key=lambda item: item[0] != socket.AF_INET)
    return family, str(address[0])


def _bound(family: socket.AddressFamily, address: str, port: int) -> socket.socket:
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        if sys.platform == "win32":
            # There the other option would let two servers share a port.
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
        else:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((address, port))
        # Another that has bound but does not listen yet shows only now.
        bound.listen(128)
    except BaseException:
        bound.close()
        raise
    return bound


def _why(fault: OSError, host: str, address: str, port: int) -> str:
    if fault.errno == errno.EADDRINUSE:
        return f"port {port} is in use{_by(port)}: end that, choose another port, or leave --port out"
    if fault.errno == errno.EACCES:
        return f"port {port} may not be used by this user: choose one above 1023, or leave --port out"
    if fault.errno == errno.EADDRNOTAVAIL:
        named = host if host == address else f"{host} ({address})"
        return f"--host {named} is no address of this machine: use 127.0.0.1, or 0.0.0.0 for all of its addresses"
    return f"cannot listen on {host}, port {port}: {fault.strerror or fault}"


def _by(port: int) -> str:
    """Return `` by NAME (process N)``; nothing where the system does not tell."""
    import psutil

    try:
        holders = {
            connection.pid
            for connection in psutil.net_connections("tcp")
            if connection.status == psutil.CONN_LISTEN and connection.laddr and connection.laddr.port == port
        }
        for pid in sorted(pid for pid in holders if pid):
            process = psutil.Process(pid)
            words = process.cmdline()
            # The script says more than the interpreter that runs it.
            script = words[1] if len(words) > 1 and not words[1].startswith("-") else process.name()
            return f" by {os.path.basename(script)} (process {pid})"
        if holders:
            return " by a process of another user"
    except (psutil.Error, OSError):
        pass
    return ""

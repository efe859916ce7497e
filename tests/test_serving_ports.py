"""Which port the local page takes, and what is said where it cannot have the one that is asked for."""

from __future__ import annotations

import contextlib
import os
import re
import socket
from collections.abc import Iterator

import pytest

from otel_train.view.serving import ports
from otel_train.view.serving.ports import Listener, ListenError, take_port


@contextlib.contextmanager
def taken(port: int = 0, host: str = "127.0.0.1") -> Iterator[int]:
    """A port that somebody listens on: this process."""
    with socket.socket() as holder:
        holder.bind((host, port))
        holder.listen()
        yield holder.getsockname()[1]


@contextlib.contextmanager
def released(listener: Listener) -> Iterator[Listener]:
    with contextlib.closing(listener.socket):
        yield listener


def free_block(length: int) -> int:
    """Return the first of some ports in a row that nobody has."""
    for first in range(21_000, 60_000, 37):
        with contextlib.ExitStack() as stack:
            try:
                for port in range(first, first + length):
                    stack.enter_context(taken(port))
            except OSError:
                continue
            return first
    raise AssertionError("no ports in a row are free")


def test_a_free_port_is_taken_as_asked() -> None:
    """And listened on: who comes now is queued."""
    port = free_block(1)
    with released(take_port("127.0.0.1", port)) as listener:
        assert (listener.port, listener.notice) == (port, "")
        with socket.create_connection(("127.0.0.1", port), timeout=5):
            pass


def test_port_zero_is_any() -> None:
    """Two servers get two ports."""
    with released(take_port("127.0.0.1", 0)) as first, released(take_port("127.0.0.1", 0)) as second:
        assert first.port != second.port
        assert first.port > 0


@pytest.mark.parametrize("holder_host", ["127.0.0.1", "0.0.0.0"])
def test_a_port_in_use_is_refused_with_its_process(holder_host: str) -> None:
    """Also where the other listens on all addresses; the text says who, and what would work."""
    with taken(host=holder_host) as port, pytest.raises(ListenError) as caught:
        take_port("127.0.0.1", port)
    who, _, fix = str(caught.value).partition(": ")
    assert re.fullmatch(rf"port {port} is in use by [\w.-]+ \(process {os.getpid()}\)", who)
    assert fix == "end that, choose another port, or leave --port out"


def test_without_a_port_the_next_free_one_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """And said, with who has the usual one."""
    first = free_block(4)
    monkeypatch.setattr(ports, "DEFAULT_PORT", first)
    with released(take_port("127.0.0.1", None)) as listener:
        assert (listener.port, listener.notice) == (first, "")
    with taken(first), taken(first + 1), released(take_port("127.0.0.1", None)) as listener:
        assert listener.port == first + 2
        pattern = rf"port {first} is in use by [\w.-]+ \(process {os.getpid()}\): taking {first + 2}"
        assert re.fullmatch(pattern, listener.notice)


def test_where_all_ports_are_in_use_the_text_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine may be full of them."""
    first = free_block(2)
    monkeypatch.setattr(ports, "DEFAULT_PORT", first)
    monkeypatch.setattr(ports, "TRIED_PORTS", 2)
    expected = f"all ports from {first} to {first + 1} are in use: choose another with --port, or --port 0"
    with taken(first), taken(first + 1), pytest.raises(ListenError, match=expected):
        take_port("127.0.0.1", None)


@pytest.mark.parametrize("host", ["no-such-host.invalid", "a..b", "x" * 300])
def test_an_unknown_host_is_refused(host: str) -> None:
    """With what would work."""
    with pytest.raises(ListenError, match=r"is not known here .*use 127\.0\.0\.1"):
        take_port(host, 0)


def test_an_address_of_another_machine_is_refused() -> None:
    """One of those that are kept for documentation."""
    with pytest.raises(ListenError, match=r"--host 192\.0\.2\.1 is no address of this machine"):
        take_port("192.0.2.1", 0)


def test_localhost_is_the_address_that_everybody_reaches() -> None:
    """Not only that of IPv6."""
    with released(take_port("localhost", 0)) as listener:
        assert listener.socket.getsockname()[0] == "127.0.0.1"


def test_a_port_of_the_system_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the right to it: the text says which ports are free to all."""

    class Refusing(socket.socket):
        def bind(self, address: object) -> None:
            raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(socket, "socket", Refusing)
    with pytest.raises(ListenError, match="port 80 may not be used by this user: choose one above 1023"):
        take_port("127.0.0.1", 80)


def test_the_holder_may_be_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some systems tell no user which process listens."""
    import psutil

    def refused(kind: str) -> list[object]:
        raise psutil.AccessDenied

    monkeypatch.setattr(psutil, "net_connections", refused)
    with taken() as port, pytest.raises(ListenError, match=f"port {port} is in use: end that"):
        take_port("127.0.0.1", port)

"""Starts the servers of the stack for the tests that need them, and shows their logs where such a test fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.stack.processes import ServerProcess
from tests.stack.servers import MissingProgramError
from tests.stack.whole_stack import Stack, start_stack

S = TypeVar("S", bound=ServerProcess)
_shown: pytest.StashKey[list[ServerProcess]] = pytest.StashKey()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test here starts programs."""
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.stack)
            item.add_marker(pytest.mark.slow)
            # The first test that uses the stack also waits for its start.
            item.add_marker(pytest.mark.timeout(300))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """Add the end of each server's log to the report of a test that failed."""
    report = yield
    if report.failed:
        for process in item.stash.get(_shown, []):
            report.sections.append((process.name, process.last_lines()))
    return report


@pytest.fixture
def run_server(request: pytest.FixtureRequest) -> Iterator[Callable[[Callable[[], S]], S]]:
    """Start a server for one test: `run_server(lambda: Collector(…))`. Left out where its program is missing."""
    started: list[ServerProcess] = []
    request.node.stash[_shown] = started

    def run(make: Callable[[], S], start: bool = True) -> S:
        try:
            server = make()
        except MissingProgramError as reason:
            pytest.skip(str(reason))
        started.append(server)
        if start:
            server.start()
        return server

    yield run
    for server in reversed(started):
        server.kill()


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """The whole stack, once for all tests that only add runs to it."""
    try:
        started = start_stack(tmp_path_factory.mktemp("stack"))
    except MissingProgramError as reason:
        pytest.skip(str(reason))
    _running.append(started)
    yield started
    _close_stack()


# The whole stack while it runs.
_running: list[Stack] = []


def _close_stack() -> None:
    while _running:
        _running.pop().close()


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """End the whole stack with the last test of this folder: others measure the children of this process."""
    if nextitem is None or Path(__file__).parent not in nextitem.path.parents:
        _close_stack()


@pytest.fixture(autouse=True)
def show_stack(request: pytest.FixtureRequest) -> None:
    """Have the logs of the whole stack shown where a test that uses it fails."""
    if "stack" in request.fixturenames:
        request.node.stash[_shown] = request.getfixturevalue("stack").servers

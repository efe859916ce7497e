"""Keeps tests apart: no variables of launchers or users, a root folder of their own, no run or thread left behind."""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import signal
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from tests.scripts import Scripts, own_threads

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from tests.browser import Pages
    from tests.otlp_servers import Certificates

FOREIGN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK", "MASTER_ADDR")
FOREIGN += ("MASTER_PORT", "TRACEPARENT", "TRACESTATE", "ENVIRONMENT", "PYTHONHASHSEED")
FOREIGN_PREFIXES = ("OTEL_", "SLURM_", "OMPI_", "PMI", "MV2_", "MPI_", "TORCHELASTIC_", "KUBERNETES_", "HF_")

# A case that takes longer than another says something of the machine alone.
settings.register_profile("otel-train", deadline=None)
settings.load_profile("otel-train")


def is_foreign(name: str) -> bool:
    return name in FOREIGN or name.startswith(FOREIGN_PREFIXES)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What was printed and logged crosses to another process as UTF-8, which has no half characters."""
    report = yield
    report.sections = [(name, text.encode("utf-8", "backslashreplace").decode()) for name, text in report.sections]
    return report


@pytest.fixture(autouse=True)
def own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable of a launcher, or of the user's own set-up, reaches a test."""
    for name in list(os.environ):
        if is_foreign(name):
            monkeypatch.delenv(name)


@pytest.fixture(scope="session", autouse=True)
def heard_interrupts() -> None:
    """A shell lets its background jobs ignore Ctrl-C, and so would every process that a test starts and interrupts."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of this test's runs, which `init()` finds by itself."""
    folder = tmp_path / "runs"
    monkeypatch.setenv("OTEL_TRAIN_DIR", str(folder))
    return folder


@pytest.fixture(autouse=True)
def finish_all() -> Iterator[None]:
    """End what a test has left open, and fail it: the next test must not record into it."""
    yield
    current = sys.modules.get("otel_train.run.current")
    if current is None:
        return
    left = current.open_runs()
    for run in left:
        run.finish()
    threads = own_threads(patience_s=3.0)
    assert not left, f"the test left runs open: {left}"
    assert not threads, "\n".join(["the test left threads:", *threads])


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Files for TLS between a server on this host and its clients."""
    if shutil.which("openssl") is None:
        pytest.skip("the openssl command is missing: it makes the certificates of this test")
    from tests.otlp_servers import Certificates

    return Certificates.make(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def start(root: Path) -> Iterator[Callable[..., Any]]:
    """`otel_train.init` without what costs time; the runs are ended with the test."""
    import otel_train

    made: list[Any] = []

    def start(**arguments: Any) -> Any:
        made.append(otel_train.init(**{"git": False, "sample_machine": False, **arguments}))
        return made[-1]

    yield start
    for run in made:
        run.finish()


@pytest.fixture
def scripts(tmp_path: Path, root: Path) -> Iterator[Scripts]:
    """Run programs: `scripts(text)` gives exit code, output and the runs they left."""
    folder = tmp_path / "work"
    folder.mkdir()
    made = Scripts(folder, root)
    yield made
    made.stop_all()


@pytest.fixture
def shut_loaders() -> Iterator[None]:
    """End the workers of a loader's iterator that a caught exception keeps in a cycle.

    The garbage collector would call it later, in some other test and on whichever thread it then runs; by then the
    workers' queues are closed before the workers are told, and each is waited for in vain for five seconds.
    """
    yield
    base = sys.modules["torch.utils.data.dataloader"]._MultiProcessingDataLoaderIter
    for found in gc.get_objects():
        if issubclass(type(found), base):
            found._shutdown_workers()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Headless Chromium, skipped with the reason where it is missing."""
    from tests.browser import opened_browser

    with opened_browser() as browser:
        yield browser


@pytest.fixture
def serve() -> Iterator[Callable[..., str]]:
    """Serve the local page: `serve(root)` gives its address, without a slash at the end."""
    from tests.serving import serve_in_thread

    with contextlib.ExitStack() as servers:

        def serve(root: Path, **options: Any) -> str:
            return servers.enter_context(serve_in_thread(root, **options)).address.rstrip("/")

        yield serve


@pytest.fixture
def page_of(browser: Browser, serve: Callable[..., str]) -> Iterator[Pages]:
    """Open pages: `page_of(address)`; the test fails at its end if the browser complained of anything.

    After `serve`, so that the pages are closed before their server ends.
    """
    from tests.browser import Pages

    pages = Pages(browser)
    yield pages
    pages.close()

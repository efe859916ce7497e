"""The page of a real run says how it ended and why, what it was given, and nothing that is secret."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser import Pages, needs_chromium, rows, texts
from tests.scripts import Scripts

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), needs_chromium]
Start = Callable[..., Any]
Serve = Callable[[Path], str]
ENDINGS = """
import sys, time, otel_train
with otel_train.init("endings") as run:
    for step in run.steps(range(10)):
        run.log({"loss": 1.0})
        if step == 5:
            if sys.argv[1] == "exception":
                raise ValueError("shapes (3, 4) and (5,) do not fit")
            if sys.argv[1] == "exit":
                sys.exit(3)
            if sys.argv[1] == "interrupt":
                print("waiting", flush=True)
                time.sleep(100)  # until it is interrupted
"""
ENDED = {
    "exception": ("failed", "ValueError: shapes (3, 4) and (5,) do not fit"),
    "exit": ("failed", "3"),
    "interrupt": ("interrupted", "KeyboardInterrupt"),
    "nothing": ("finished", ""),
}
# Only what the program itself asked for is known before its process has ended.
CODES = {"exception": None, "exit": "3", "interrupt": None, "nothing": None}


@pytest.mark.parametrize("how", ENDED)
def test_how_a_run_ended_stands_on_top(scripts: Scripts, root: Path, serve: Serve, page_of: Pages, how: str) -> None:
    """State and cause; of an exception its type, message and traceback; of an exit its code."""
    process = scripts.popen(ENDINGS, how)
    if how == "interrupt":
        assert process.stdout.readline() == "waiting\n"
        process.send_signal(signal.SIGINT)
    ended = scripts.end(process)
    state, cause = ENDED[how]
    page = page_of(f"{serve(root)}/run/{ended.path.name}")
    expect(page.locator("#pill")).to_have_text(state)
    expect(page.locator("#overview h1")).to_have_text(state.capitalize())
    hero = page.locator("#overview .hero")
    expect(hero).to_contain_text(cause)
    if how == "exception":
        expect(hero.locator(".cause strong")).to_have_text("ValueError")
        hero.locator(".cause summary").click()
        expect(hero.locator(".cause pre")).to_contain_text("raise ValueError")
    facts = dict(zip(texts(hero.locator("dt")), texts(hero.locator("dd")), strict=True))
    assert (facts["Last step"], facts.get("Exit code")) == ("9" if how == "nothing" else "5", CODES[how])


def test_a_single_low_point_is_the_best_at_its_step(start: Start, root: Path, serve: Serve, page_of: Pages) -> None:
    """Of 100 steps in a moment one is 0.05: none is averaged away, and the page leads to it."""
    run = start()
    for step in range(100):
        run.log({"loss": 0.05 if step == 37 else 1.0}, step=step)
    run.finish()
    page = page_of(f"{serve(root)}/run/{run.id}")
    page.locator("#summary tbody tr").first.wait_for()
    heads = texts(page.locator("#summary thead th"))
    (row,) = (dict(zip(heads, row, strict=True)) for row in rows(page, "#summary table"))
    assert row["Points"] == "100"
    for column in ("Minimum", "Best"):
        assert row[column].split() == ["0.05", "step", "37"]
    expect(page.locator("#overview .tile").first).to_contain_text("0.05")
    expect(page.locator("#overview .tile").first).to_contain_text("step 37")


def test_a_resumed_run_shows_both_values_of_what_was_changed(
    start: Start, root: Path, serve: Serve, page_of: Pages
) -> None:
    """300 keys of which one is endless; the learning rate stands there for each attempt."""
    config = {f"key{number:03}": {"a": {"b": {"c": number}}} for number in range(298)}
    config |= {"lr": 1e-4, "labels": "x" * 1200}
    run = start(config=config)
    run.log({"loss": 1.0})
    run.finish()
    start(config={**config, "lr": 5e-5}, resume=run.id).finish()
    page = page_of(f"{serve(root)}/run/{run.id}")
    page.locator("#configuration tbody tr").first.wait_for()
    shown = {row[0]: row[1:] for row in rows(page, "#configuration table")}
    assert len(shown) == 300
    assert shown["lr"] == ["0.0001", "5e-05"]
    assert shown["key007.a.b.c"] == ["7", "7"]
    assert shown["labels"][0].startswith("x" * 100)
    page.get_by_role("searchbox", name="Search keys and values").fill("lr")
    expect(page.locator("#configuration tbody tr")).to_have_count(1)


SECRETS = """
import sys, otel_train
config = {"db": "postgres://u:FAKE4@h/db", "use_cls_token": True, "num_memory_tokens": 16}
with otel_train.init("secrets", config=config) as run:
    run.log({"loss": 1.0})
"""


def test_no_secret_is_on_the_page(scripts: Scripts, root: Path, serve: Serve, page_of: Pages) -> None:
    """Neither of the command line, the remote, the environment nor the configuration; what only sounds so is kept."""
    for command in (["init", "-q"], ["remote", "add", "origin", "https://u:FAKEPAT2@git.example/a/b.git"]):
        subprocess.run(["git", *command], cwd=scripts.folder, check=True, capture_output=True)
    arguments = ("--api-key", "FAKEKEY1", "--use_cls_token", "True", "--num_memory_tokens", "16")
    ended = scripts(SECRETS, *arguments, env={"HF_TOKEN": "FAKE3", "OTEL_TRAIN_GIT": "1"})
    assert ended.code == 0, ended.errors
    address = serve(root)
    page = page_of(f"{address}/run/{ended.path.name}")
    page.locator("html[data-whole=yes]").wait_for(state="attached")
    shown = page.evaluate("document.documentElement.textContent")
    everything = page.evaluate(
        "async (url) => (await fetch(url)).text()", f"{address}/api/run/{ended.path.name}"
    )  # also what is folded away
    for text in (shown, everything):
        assert "FAKE" not in text
    for kept in ("git.example/a/b.git", "use_cls_token", "num_memory_tokens", "@h/db"):
        assert kept in everything, kept
    configuration = {row[0]: row[1:] for row in rows(page, "#configuration table")}
    assert configuration["use_cls_token"] == ["true"]
    assert configuration["num_memory_tokens"] == ["16"]

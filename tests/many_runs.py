"""Makes folders of many ended runs of which everything is known, and reads the page of all runs in a browser."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from playwright.sync_api import Page, expect

from otel_train.clock import NS_PER_S, compact, iso
from tests.runs import START_NS, RunBuilder

STATES = ("finished", "failed", "killed", "interrupted")
PROJECTS = ("digits", "speech")


@dataclass(frozen=True)
class Made:
    """What is known of a run that a test has made."""

    run_id: str
    name: str
    state: str
    project: str
    loss: float | None
    best: float | None
    lr: float
    created_ns: int
    duration_s: float


def make(root: Path, number: int, draw: random.Random, **document: Any) -> Made:
    """Write one ended run as its process leaves it: run.json with a summary, and hardly any log."""
    created_ns = START_NS + number * 3600 * NS_PER_S
    letters = "".join(draw.choice("abcdefghijklmnopqrstuvwxyz234567") for _ in range(8))
    run_id = f"{compact(created_ns)}-{letters}"
    # Every seventh has no loss, every eleventh ended in NaN.
    loss = None if number % 7 == 3 else float("nan") if number % 11 == 5 else round(draw.uniform(0.05, 40.0), 4)
    best = None if loss is None else 0.04 + number / 1000
    told = None if loss is None else {"last": "NaN" if loss != loss else loss, "min": best, "max": 50.0, "count": 9}
    state, project, lr = STATES[number % 4], PROJECTS[number % 2], 10.0 ** -(1 + number % 4)
    duration_s = float(draw.randint(1, 90_000))
    builder = RunBuilder(
        root,
        run_id,
        **{
            "name": f"run-{number}",
            "project": project,
            "created": iso(created_ns),
            "tags": ["baseline"] if number % 3 == 0 else [],
            "summary": {} if told is None else {"val/loss": told},
            "metrics": {"loss": {"goal": "min"}},
            **document,
        },
    )
    start_s = number * 3600.0
    builder.attempt(start_s=start_s, host=f"node{number % 3}", config={"lr": lr, "model": {"width": number % 5}})
    builder.end(state, at_s=start_s + duration_s, reason="" if state == "finished" else f"because of {number}")
    return Made(run_id, builder.name, state, project, loss, best, lr, created_ns, duration_s)


def shown(page: Page) -> list[str]:
    """Return the ids of all rows in their order: the table holds only those in sight, so it is scrolled through."""
    found: list[str] = page.evaluate(
        """async () => {
          const box = document.querySelector(".runs-scroll");
          if (box.hidden) return [];
          const ids = [];
          for (let top = 0; ; top += 200) {
            box.scrollTop = top;
            await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
            for (const row of box.querySelectorAll("tbody tr[data-run]"))
              if (!ids.includes(row.dataset.run)) ids.push(row.dataset.run);
            if (box.scrollTop + box.clientHeight >= box.scrollHeight - 1) break;
          }
          box.scrollTop = 0;
          await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
          return ids;
        }"""
    )
    return found


def wait_for_count(page: Page, count: int, total: int) -> None:
    """Wait until the table says that it has so many rows of so many runs."""
    words = f"{count} of {total} runs" if count != total else f"{total} runs"
    expect(page.locator(".runs-count")).to_have_text(words)


def filter_by(page: Page, text: str) -> None:
    page.locator("#runs-filter").fill(text)
    page.locator("#runs-filter").press("Enter")


def cell(page: Page, run_id: str, column: str) -> str:
    """Return the text of a run's cell in the column of this head."""
    place = page.locator(".runs-grid thead th").all_inner_texts()
    names = [text.splitlines()[0].strip() if text.strip() else "" for text in place]
    row = page.locator(f'tr[data-run="{run_id}"]')
    return row.locator("xpath=./*").nth(names.index(column)).inner_text()


def is_below(run: Made, limit: float) -> bool:
    return run.loss is not None and run.loss < limit


def compared(page: Page) -> list[str]:
    href = page.locator(".runs-compare").get_attribute("href") or ""
    assert href.startswith("compare?runs=")
    return [unquote(part) for part in href.removeprefix("compare?runs=").split(",")]

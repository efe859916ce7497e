"""What run.check_samples costs: CPU time of a call that only counts, of a check, and of what the writer does with it.

    python benchmarks/samples_cost.py                about a minute
    python benchmarks/samples_cost.py --rounds 50    more rounds

Times are CPU times of one thread (torch has one too), medians over the rounds with their range.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
import timeit
from collections.abc import Callable
from typing import Any

import torch

import otel_train
from otel_train.watch.samples import Asked


def batches() -> dict[str, Any]:
    """Return what is checked, by name."""
    generator = torch.Generator().manual_seed(0)
    pictures = torch.randn(32, 3, 224, 224, generator=generator)
    words = [" ".join(["word"] * (5 + number % 40)) for number in range(256)]
    return {
        "digits, 32 x 1 x 8 x 8 float32": torch.rand(32, 1, 8, 8, generator=generator),
        "pictures, 32 x 3 x 224 x 224 float32": pictures,
        "pictures, 32 x 3 x 224 x 224 channels last": pictures.contiguous(memory_format=torch.channels_last),
        "pictures, 32 x 3 x 224 x 224 uint8": (pictures.clamp(-2, 2) * 60 + 120).to(torch.uint8),
        "token ids, 32 x 512": torch.randint(0, 30_000, (32, 512), generator=generator),
        "256 texts": words,
        "table, 256 rows of 20 columns": {f"c{column}": list(range(256)) for column in range(20)},
    }


def spent_ms(call: Callable[[], Any]) -> tuple[float, Any]:
    start_s = time.thread_time()
    result = call()
    return (time.thread_time() - start_s) * 1e3, result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        run = otel_train.init("samples-cost", dir=folder, git=False, sample_machine=False)
        labels = torch.arange(32) % 10
        small = batches()["digits, 32 x 1 x 8 x 8 float32"]
        run.check_samples(small, labels=labels, every=10**9)
        calls = 100_000
        counting = min(
            timeit.repeat(
                lambda: run.check_samples(small, labels=labels, every=10**9),
                timer=time.thread_time,
                number=calls,
                repeat=9,
            )
        )
        print(f"a call that only counts: {counting / calls * 1e6:.2f} µs")
        print(f"{'batch':45} {'check, training thread':>28} {'values and files, writer':>28}")
        for name, batch in batches().items():
            split = name.split(",")[0]
            asked = Asked(every=1, split=split, keep=4, kind=None, value_range=None, classes=None, decode=None)
            checks, reads = [], []
            for step in range(rounds + 2):
                labelled = labels if len(batch) == 32 else None
                check_ms, reading = spent_ms(lambda: run._samples.check(batch, labelled, asked, {"step": step}))  # noqa: B023
                read_ms, _ = spent_ms(reading.read)
                if step >= 2:  # the first ones set the bins, and load what is needed
                    checks.append(check_ms)
                    reads.append(read_ms)
            print(f"{name:45} {shown(checks):>28} {shown(reads):>28}")
        run.finish()


def shown(times_ms: list[float]) -> str:
    return f"{statistics.median(times_ms):.2f} ms ({min(times_ms):.2f} to {max(times_ms):.2f})"


if __name__ == "__main__":
    main()

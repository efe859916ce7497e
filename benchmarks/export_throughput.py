"""What it costs to bring a million points from the run log to Prometheus, beside the SDK's own exporter.

    python benchmarks/export_throughput.py                    three rounds
    python benchmarks/export_throughput.py --rounds 5 --points 200000
    python benchmarks/export_throughput.py --markdown FILE    also writes the table to a file

Needs the programs of the Collector and of Prometheus (`make servers`). Each round starts both anew, with the shipped
configuration, and sends the same number of points twice: our run log by `otel-train push`, and by the exporter that
comes with OpenTelemetry's SDK (OTLP/HTTP with protobuf, batches of 2,000 points, gzip), which is handed ready numbers.
The SDK's instruments keep one value of a gauge an export: what they would do for every point is measured too, with
fewer points.
What sending costs a training is measured by a loop of 5,000 points a second, with an endpoint and without one, in
turns: the CPU of its own thread for recording a step, and the wall time of a step.
Figures are medians; the range beside them is the machine's noise.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

NAMES = ["loss", "accuracy", "lr", "grad_norm", "f1", "precision", "recall", "aux_loss", "tokens", "temperature"]
STEP_NS = 10_000_000
BLOCK = 200
SDK_INSTRUMENT_STEPS = 1_000
# Of ten points each; with the work of a step about 2 ms.
TRAINING_STEPS = 4_000
TURNS = 3


def values(count: int) -> dict[str, list[float]]:
    """Return that many points of each metric, as training has them."""
    noise = random.Random(1)
    return {name: [(index + 1) * (1 + noise.random()) for _ in range(count)] for index, name in enumerate(NAMES)}


def write_run(root: Path, points: int) -> Path:
    """Write a finished run of so many points; times are 10 ms apart, so none falls into another's millisecond."""
    import otel_train
    from otel_train.otlp.encode import LineEncoder
    from otel_train.record.entries import Column
    from otel_train.runlog.segments import list_segments

    run = otel_train.init(dir=str(root), git=False, sample_machine=False, capture_logs=False, name="throughput")
    path = Path(run.path)
    run.finish()
    (folder,) = (path / "attempt-1").iterdir()
    resource_attributes = {"service.name": "throughput", "run_id": path.name, "dl.rank": 0}
    encoder = LineEncoder(resource_attributes, "1")
    start_ns = time.time_ns() - points // len(NAMES) * STEP_NS
    number = list_segments(folder, "metrics")[-1][0] + 1
    columns = values(points // len(NAMES))
    with open(folder / f"metrics.{number:06d}.jsonl", "wb") as file:
        for first in range(0, points // len(NAMES), BLOCK):
            times = [start_ns + step * STEP_NS for step in range(first, first + BLOCK)]
            block = [
                Column(f"train.{name}", times, column[first : first + BLOCK], (("split", "train"),))
                for name, column in columns.items()
            ]
            file.write(encoder.points(block))
    return path


def timed(command: list[str], environ: dict[str, str]) -> tuple[float, float, str]:
    """Run a command; return its wall time, the CPU of it and its children, and what it printed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start_s = time.perf_counter()
    done = subprocess.run(command, env={**os.environ, **environ}, capture_output=True, text=True, check=False)
    wall_s = time.perf_counter() - start_s
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"{command} ended with {done.returncode}:\n{done.stdout[-800:]}{done.stderr[-800:]}")
    return wall_s, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout


def stored(url: str, run_id: str) -> int:
    """Count the run's points in Prometheus."""
    query = " + ".join(f'sum(count_over_time(train_{name}{{run_id="{run_id}"}}[1d]) or vector(0))' for name in NAMES)
    with urllib.request.urlopen(f"{url}/api/v1/query?{urllib.parse.urlencode({'query': query})}") as answer:
        found = json.load(answer)["data"]["result"]
    return int(found[0]["value"][1]) if found else 0


def wait_for(url: str, run_id: str, count: int, patience_s: float = 120.0) -> None:
    """Wait until the store has them all: what is counted as sent must have arrived."""
    until_s = time.monotonic() + patience_s
    while (found := stored(url, run_id)) < count:
        if time.monotonic() > until_s:
            raise SystemExit(f"Prometheus has {found:,} of {count:,} points after {patience_s:g} s")
        time.sleep(0.5)  # between two looks at a store that takes its time


def sdk_exporter(endpoint: str, run_id: str, points: int) -> None:
    """In a process of its own: send ready numbers through the SDK's data classes and its exporter."""
    from opentelemetry.exporter.otlp.proto.http import Compression
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics.export import (
        Gauge,
        Metric,
        MetricExportResult,
        MetricsData,
        NumberDataPoint,
        ResourceMetrics,
        ScopeMetrics,
    )
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    exporter = OTLPMetricExporter(endpoint=f"{endpoint}/v1/metrics", compression=Compression.Gzip)
    described = Resource({"service.name": "throughput", "run_id": run_id, "dl.rank": 0})
    scope = InstrumentationScope("throughput")
    columns = values(points // len(NAMES))
    start_ns = time.time_ns() - points // len(NAMES) * STEP_NS
    for first in range(0, points // len(NAMES), BLOCK):
        steps = range(first, min(first + BLOCK, points // len(NAMES)))
        metrics = [
            Metric(
                f"train.{name}",
                None,
                None,
                Gauge(
                    [
                        NumberDataPoint({"split": "train"}, 0, start_ns + step * STEP_NS, columns[name][step])
                        for step in steps
                    ]
                ),
            )
            for name in NAMES
        ]
        data = MetricsData([ResourceMetrics(described, [ScopeMetrics(scope, metrics, "")], "")])
        if exporter.export(data) is not MetricExportResult.SUCCESS:
            raise SystemExit("the exporter failed")
    exporter.shutdown()


def sdk_instruments(endpoint: str, run_id: str, steps: int) -> None:
    """In a process of its own: ten gauges, and an export a step, so that no point is lost."""
    from opentelemetry.exporter.otlp.proto.http import Compression
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    from opentelemetry.sdk.resources import Resource

    exporter = OTLPMetricExporter(endpoint=f"{endpoint}/v1/metrics", compression=Compression.Gzip)
    reader = PeriodicExportingMetricReader(exporter, export_interval_millis=float("inf"))
    described = Resource({"service.name": "throughput", "run_id": run_id, "dl.rank": 0})
    provider = MeterProvider([reader], described, shutdown_on_exit=False)
    meter = provider.get_meter("throughput")
    gauges = {name: meter.create_gauge(f"train.{name}") for name in NAMES}
    columns = values(steps)
    for step in range(steps):
        for name, gauge in gauges.items():
            gauge.set(columns[name][step], {"split": "train"})
        provider.force_flush()
    provider.shutdown()


def training(endpoint: str) -> None:
    """In a process of its own: train, and print the CPU of recording and the wall time, both in µs a step."""
    import otel_train

    columns = values(TRAINING_STEPS)
    run = otel_train.init(git=False, console="off", endpoint=endpoint or None, sample_machine=False)
    recording_ns = 0
    start_s = time.perf_counter()
    for step in range(TRAINING_STEPS):
        sum(number * number for number in range(30_000))
        measured = {name: column[step] for name, column in columns.items()}
        before_ns = time.thread_time_ns()
        run.log(measured, step=step)
        recording_ns += time.thread_time_ns() - before_ns
    wall_s = time.perf_counter() - start_s
    run.finish()
    print(json.dumps({"recording": recording_ns / 1e3 / TRAINING_STEPS, "step": wall_s * 1e6 / TRAINING_STEPS}))


def training_cost(folder: Path, endpoint: str) -> dict[str, list[dict[str, float]]]:
    """Train with the endpoint and without, in turns."""
    results: dict[str, list[dict[str, float]]] = {"without an endpoint": [], "sending": []}
    this = [sys.executable, __file__, "--only", "training"]
    for _ in range(TURNS):
        for name, url in (("without an endpoint", ""), ("sending", endpoint)):
            _, _, printed = timed([*this, "--endpoint", url], {"OTEL_TRAIN_DIR": str(folder / "trainings")})
            results[name].append(json.loads(printed.splitlines()[-1]))
    return results


def training_table(results: dict[str, list[dict[str, float]]]) -> list[str]:
    """Return the lines of the table of what sending costs a training."""
    lines = [
        "| training | recording a step of ten values, µs of its thread's CPU | a step, µs |",
        "| --- | --- | --- |",
    ]
    for name, found in results.items():
        cells = [shown([result[key] for result in found]) for key in ("recording", "step")]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def one_round(folder: Path, points: int) -> dict[str, dict[str, float]]:
    """Start the servers anew and send everything once each way; return seconds and CPU by what was used."""
    from tests.stack.servers import Collector, Prometheus

    results: dict[str, dict[str, float]] = {}
    run = write_run(folder / "runs", points)
    prometheus = Prometheus(folder / "prometheus")
    collector = Collector(folder / "collector", prometheus=prometheus.otlp_url)
    try:
        prometheus.start()
        collector.start()
        this = [sys.executable, __file__, "--endpoint", collector.url, "--only"]
        few = SDK_INSTRUMENT_STEPS * len(NAMES)
        ways = {
            "otel-train push": ([sys.executable, "-m", "otel_train.cli.main", "push", str(run)], run.name, points),
            "SDK exporter": ([*this, "exporter", "--run-id", "exporter"], "exporter", points),
            "SDK instruments": ([*this, "instruments", "--run-id", "instruments"], "instruments", few),
        }
        for name, (command, run_id, count) in ways.items():
            if "--only" in command:
                command = [*command, "--points", str(count)]
            before = collector.cpu_s(), prometheus.cpu_s()
            start_s = time.perf_counter()
            wall_s, cpu_s, _ = timed(command, {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url})
            wait_for(prometheus.url, run_id, count)
            results[name] = {
                "sender": cpu_s * 1e6 / count,
                "collector": (collector.cpu_s() - before[0]) * 1e6 / count,
                "prometheus": (prometheus.cpu_s() - before[1]) * 1e6 / count,
                "acknowledged": count / wall_s,
                "stored": count / (time.perf_counter() - start_s),
            }
    finally:
        collector.stop()
        prometheus.stop()
    return results


def train_beside_servers() -> dict[str, list[dict[str, float]]]:
    """Start the servers anew, and measure trainings that send to them and that do not."""
    from tests.stack.servers import Collector, Prometheus

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prometheus = Prometheus(folder / "prometheus")
        collector = Collector(folder / "collector", prometheus=prometheus.otlp_url)
        try:
            prometheus.start()
            collector.start()
            return training_cost(folder, collector.url)
        finally:
            collector.stop()
            prometheus.stop()


def shown(numbers: list[float]) -> str:
    """Return median and range."""
    return f"{statistics.median(numbers):,.3g} ({min(numbers):,.3g} … {max(numbers):,.3g})"


def table(rounds: list[dict[str, dict[str, float]]]) -> list[str]:
    """Return the lines of the table."""
    ours = statistics.median(result["otel-train push"]["sender"] for result in rounds)
    lines = [
        "| way | CPU of the sender, µs a point | times ours | Collector, µs a point | Prometheus, µs a point | "
        "points a second until acknowledged | until stored |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name in rounds[0]:
        figures = {key: [result[name][key] for result in rounds] for key in rounds[0][name]}
        times = statistics.median(figures["sender"]) / ours
        cells = [shown(figures[key]) for key in ("collector", "prometheus", "acknowledged", "stored")]
        lines.append(f"| {name} | {shown(figures['sender'])} | {times:.3g} | {' | '.join(cells)} |")
    return lines


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--points", type=int, default=1_000_000)
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--only", choices=("exporter", "instruments", "training"), help=argparse.SUPPRESS)
    parser.add_argument("--endpoint", help=argparse.SUPPRESS)
    parser.add_argument("--run-id", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.only == "exporter":
        return sdk_exporter(chosen.endpoint, chosen.run_id, chosen.points)
    if chosen.only == "training":
        return training(chosen.endpoint)
    if chosen.only == "instruments":
        return sdk_instruments(chosen.endpoint, chosen.run_id, chosen.points // len(NAMES))
    rounds = []
    for number in range(chosen.rounds):
        print(f"round {number + 1} of {chosen.rounds}")
        with tempfile.TemporaryDirectory() as folder:
            rounds.append(one_round(Path(folder), chosen.points))
    lines = [*table(rounds), "", *training_table(train_beside_servers())]
    print("\n".join(lines))
    if chosen.markdown:
        chosen.markdown.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return None


if __name__ == "__main__":
    main()

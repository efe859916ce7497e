"""One training with and without somebody looking into its model, in a process of its own. See `watch_cost.py`."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from peers import folder_bytes, scratch
from torch import nn

EVERY = 100
STARTED_S = 2.0


class Digits:
    """The convolutional network of examples/digits.py on scikit-learn's digits, batches of 64: 38,000 parameters."""

    # Of one block: two samplings.
    steps = 200

    def __init__(self) -> None:
        from sklearn.datasets import load_digits

        digits = load_digits()
        self._images = torch.tensor(digits.data, dtype=torch.float32).view(-1, 1, 8, 8) / 16
        self._digits = torch.tensor(digits.target)
        convolutions = (nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU())
        head = (nn.Flatten(), nn.Dropout(0.3), nn.Linear(32 * 4 * 4, 64), nn.ReLU(), nn.Linear(64, 10))
        self.model = nn.Sequential(*convolutions, nn.MaxPool2d(2), *head)

    def loss(self, step: int) -> Any:
        start = 64 * step % (len(self._images) - 64)
        chosen = slice(start, start + 64)
        return nn.functional.cross_entropy(self.model(self._images[chosen]), self._digits[chosen])


class Transformer:
    """Four blocks of 256 features with ReLU, 8 sequences of 64 tokens a batch: 3.7 million parameters."""

    steps = 100

    def __init__(self) -> None:
        class Block(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.attention = nn.MultiheadAttention(256, 4, batch_first=True)
                self.norm1, self.norm2 = nn.LayerNorm(256), nn.LayerNorm(256)
                self.mlp = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 256))

            def forward(self, x: Any) -> Any:
                normed = self.norm1(x)
                x = x + self.attention(normed, normed, normed, need_weights=False)[0]
                return x + self.mlp(self.norm2(x))

        self.model = nn.Sequential(nn.Embedding(1000, 256), *[Block() for _ in range(4)], nn.Linear(256, 1000))
        self._tokens = torch.randint(0, 1000, (32, 8, 65))

    def loss(self, step: int) -> Any:
        tokens = self._tokens[step % 32]
        logits = self.model(tokens[:, :-1])
        return nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


WORKLOADS: dict[str, Callable[[], Any]] = {"digits": Digits, "transformer": Transformer}


class Ours:
    """`run.watch(every=100)`."""

    name = "otel-train"
    module = "otel_train"
    # Of a hundred steps the one that is sampled.
    at = 0

    def __init__(self, folder: Path) -> None:
        import otel_train

        self._run = otel_train.init(project="bench", dir=folder, git=False)
        time.sleep(STARTED_S)

    def begin(self, model: Any, optimizer: Any) -> None:
        self._run.watch(model, optimizer, every=EVERY)

    def before(self, step: int) -> None:
        """Nothing: hooks do it."""

    def after(self, step: int) -> None:
        """Nothing: hooks do it."""

    def end(self) -> None:
        self._run.unwatch()

    def settle(self) -> None:
        self._run.flush(30)

    def close(self) -> None:
        self._run.finish()


class Board:
    """The same signals by hand, as histograms and scalars of TensorBoard."""

    name = "TensorBoard"
    module = "tensorboard"
    at = 0

    def __init__(self, folder: Path) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder))
        self._old: dict[str, Any] = {}
        self._hooks: list[Any] = []
        self._outputs: dict[str, Any] = {}

    def begin(self, model: Any, optimizer: Any) -> None:
        self._model = model

    def forward(self, step: int) -> None:
        """Catch the outputs of the ReLUs of this step."""
        if step % EVERY:
            return
        for name, module in self._model.named_modules():
            if isinstance(module, nn.ReLU):
                catch = lambda module, inputs, output, name=name: self._outputs.update({name: output.detach()})  # noqa: E731
                self._hooks.append(module.register_forward_hook(catch))

    def before(self, step: int) -> None:
        if step % EVERY:
            return
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        for name, output in self._outputs.items():
            greatest = output.amax(
                [dim for dim in range(output.dim()) if dim != (1 if output.dim() == 4 else output.dim() - 1)]
            )
            self._writer.add_scalar(f"dead/{name}", (greatest == 0).float().mean().item(), step)
            self._writer.add_scalar(f"mean/{name}", output.mean().item(), step)
            self._writer.add_scalar(f"std/{name}", output.std().item(), step)
        self._outputs = {}
        for name, parameter in self._model.named_parameters():
            self._writer.add_histogram(f"weight/{name}", parameter, step)
            self._writer.add_histogram(f"grad/{name}", parameter.grad, step)
            self._writer.add_scalar(f"grad_norm/{name}", parameter.grad.norm().item(), step)
            self._writer.add_scalar(f"weight_norm/{name}", parameter.norm().item(), step)
            self._old[name] = parameter.detach().clone()

    def after(self, step: int) -> None:
        if step % EVERY:
            return
        for name, parameter in self._model.named_parameters():
            old = self._old.pop(name)
            self._writer.add_scalar(f"ratio/{name}", ((parameter.detach() - old).norm() / old.norm()).item(), step)

    def end(self) -> None:
        """Nothing stays in the model."""

    def settle(self) -> None:
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class Wandb:
    """`wandb.watch(log="all", log_freq=100)`: gradients and parameters; it has no norms, ratios and activations."""

    name = "W&B watch"
    module = "wandb"
    # It samples each hundredth pass, not the first.
    at = EVERY - 1

    def __init__(self, folder: Path) -> None:
        os.environ.update(WANDB_MODE="offline", WANDB_SILENT="true", WANDB_DIR=str(folder))
        import wandb

        self._run = wandb.init(project="bench", dir=str(folder), settings=wandb.Settings(silent=True))

    def begin(self, model: Any, optimizer: Any) -> None:
        self._run.watch(model, log="all", log_freq=EVERY)

    def before(self, step: int) -> None:
        """Nothing: hooks do it."""

    def after(self, step: int) -> None:
        if step % EVERY == self.at:
            # It hands over what it holds with the next call.
            self._run.log({"step": step})

    def end(self) -> None:
        self._run.unwatch()

    def settle(self) -> None:
        time.sleep(0.5)

    def close(self) -> None:
        self._run.finish()


TOOLS: dict[str, Callable[[Path], Any]] = {tool.name: tool for tool in (Ours, Board, Wandb)}


def probe(workload_name: str, tool_name: str, blocks: int) -> dict[str, Any]:
    """Train in alternating blocks with and without a tool; return by how much it makes a block slower.

    Both stand in one process while the tool's threads live, so that a slow second of the machine meets both.
    """
    torch.manual_seed(3)
    torch.set_num_threads(1)
    workload = WORKLOADS[workload_name]()
    optimizer = torch.optim.AdamW(workload.model.parameters(), lr=1e-4)

    def train(tool: Any) -> list[float]:
        """Return the training thread's CPU of each step, ms."""
        forward = getattr(tool, "forward", None)
        spent = []
        for step in range(workload.steps):
            start_ns = time.thread_time_ns()
            if forward is not None:
                forward(step)
            loss = workload.loss(step)
            optimizer.zero_grad()
            loss.backward()
            if tool is not None:
                tool.before(step)
            optimizer.step()
            if tool is not None:
                tool.after(step)
            spent.append((time.thread_time_ns() - start_ns) / 1e6)
        return spent

    def timed(tool: Any) -> tuple[int, int, list[float]]:
        """Return wall time of the steps, CPU of all other threads until all is on disk, and each step."""
        others_ns = time.process_time_ns() - time.thread_time_ns()
        if tool is not None:
            tool.begin(workload.model, optimizer)
        start_ns = time.perf_counter_ns()
        steps = train(tool)
        spent_ns = time.perf_counter_ns() - start_ns
        if tool is not None:
            tool.end()
            tool.settle()
        return spent_ns, time.process_time_ns() - time.thread_time_ns() - others_ns, steps

    rows = []
    with scratch() as name:
        tool = TOOLS[tool_name](Path(name))
        try:
            for block in range(blocks + 1):
                pair = [timed(None), timed(tool)] if block % 2 else [timed(tool), timed(None)][::-1]
                if block:
                    rows.append(pair)
        finally:
            tool.close()
        size = folder_bytes(Path(name))
    samplings = workload.steps / EVERY
    plain_ms = statistics.median(spent for (_, _, steps), _ in rows for spent in steps)
    # A sampled step less the other steps of its block, which were as slow as the machine was then.
    sampling_ms = [
        spent - statistics.median(steps)
        for _, (_, _, steps) in rows
        for number, spent in enumerate(steps)
        if number % EVERY == TOOLS[tool_name].at
    ]
    return {
        "step_ms": [without / workload.steps / 1e6 for (without, _, _), _ in rows],
        "wall_percent": [100 * (beside / without - 1) for (without, _, _), (beside, _, _) in rows],
        "others_percent": [
            100 * (beside - without) / 1e6 / workload.steps / plain_ms for (_, without, _), (_, beside, _) in rows
        ],
        "sampling_ms": sampling_ms,
        "sampling_percent": [100 * spent / (EVERY * plain_ms) for spent in sampling_ms],
        "kib_per_sampling": size / 1024 / samplings / (blocks + 1),
        "parameters": sum(parameter.numel() for parameter in workload.model.parameters()),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("tool", choices=TOOLS)
    parser.add_argument("blocks", type=int)
    arguments = parser.parse_args()
    print(json.dumps(probe(arguments.workload, arguments.tool, arguments.blocks)))

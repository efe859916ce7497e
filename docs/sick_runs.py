"""Trains small networks on handwritten digits, one well and others each with a planted illness, for docs/internals.md.

python docs/sick_runs.py vanishing --dir build/sick     trains one of `RUNS`; `make pictures` trains all and draws them
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import sklearn.datasets
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import otel_train

STEPS = 600
FEWER_STEPS = 400
EVERY = 10


def digits() -> TensorDataset:
    """Return 1,797 pictures of 64 pixels, centred and of deviation one, with their digits."""
    images, labels = sklearn.datasets.load_digits(return_X_y=True)
    pixels = torch.from_numpy(images).float()
    return TensorDataset((pixels - pixels.mean()) / pixels.std(), torch.from_numpy(labels))


def network(depth: int, activation: type[nn.Module], width: int = 64) -> nn.Sequential:
    """Return a network of `depth` hidden layers, each a module of its own name."""
    layers: dict[str, nn.Module] = {}
    for number in range(1, depth + 1):
        layers[f"fc{number}"] = nn.Linear(64 if number == 1 else width, width)
        layers[f"act{number}"] = activation()
    layers["head"] = nn.Linear(width, 10)
    made = nn.Sequential()
    for name, layer in layers.items():
        if isinstance(layer, nn.Linear) and activation is nn.ReLU:
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
        made.add_module(name, layer)
    return made


def batches(run: otel_train.Run, loader: DataLoader[Any], steps: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Give batches, epoch after epoch, until so many steps were made."""
    while True:
        for batch in run.steps(loader):
            yield batch
            if run.step >= steps - 1:
                return


def fit(
    run: otel_train.Run,
    model: nn.Module,
    *,
    lr: float = 0.05,
    decay: float = 0.0,
    clip: float = 5.0,
    steps: int = STEPS,
    loader: DataLoader[Any] | None = None,
    before: Callable[[int], None] = lambda step: None,
) -> None:
    """Train with plain gradient descent and momentum; `before` may do harm at a step."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=lr, momentum=0.9, weight_decay=decay)
    run.watch(model, optimizer, every=EVERY)
    for images, labels in batches(run, loader or DataLoader(digits(), 64, shuffle=True), steps):
        before(run.step)
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        run.log({"loss": loss})


# The model ------------------------------------------------------------------------------------------------------------


def healthy(run: otel_train.Run) -> None:
    """Four hidden layers, He initialisation, a learning rate that suits them."""
    fit(run, network(4, nn.ReLU), lr=0.01)


def exploding(run: otel_train.Run) -> None:
    """The learning rate rises tenfold and more from step 300 on, and nothing is clipped."""
    model = network(4, nn.ReLU)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    run.watch(model, optimizer, every=EVERY)
    for images, labels in batches(run, DataLoader(digits(), 64, shuffle=True), 420):
        if run.step >= 300:
            optimizer.param_groups[0]["lr"] *= 1.06
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.log({"loss": loss})


def vanishing(run: otel_train.Run) -> None:
    """Ten sigmoid layers: each passes on a quarter of the gradient at most."""
    fit(run, network(10, nn.Sigmoid))


def frozen(run: otel_train.Run) -> None:
    """The second layer was forgotten to be thawed."""
    model = network(4, nn.ReLU)
    model.get_submodule("fc2").requires_grad_(False)
    fit(run, model, lr=0.01)


def decaying(run: otel_train.Run) -> None:
    """The weight decay is a hundred times what was meant: weights shrink faster than the gradient can hold them."""
    fit(run, network(4, nn.ReLU), lr=0.01, decay=0.05)


def dead(run: otel_train.Run) -> None:
    """At step 200 one far too large step drives the biases of the second layer down."""
    model = network(4, nn.ReLU)
    biases = model.get_submodule("fc2").bias

    def jump(step: int) -> None:
        if step == 200:
            with torch.no_grad():
                biases[:44] -= 30.0

    fit(run, model, lr=0.01, before=jump)


# Mixed precision ------------------------------------------------------------------------------------------------------


def _scaled(run: otel_train.Run, factor: Callable[[int], float]) -> None:
    model = network(4, nn.ReLU)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24, growth_interval=60)
    run.watch(model, optimizer, every=EVERY, scaler=scaler)
    for images, labels in batches(run, DataLoader(digits(), 64, shuffle=True), FEWER_STEPS):
        with torch.autocast("cpu", torch.float16):
            logits = model(images)
        loss = nn.functional.cross_entropy(logits.float(), labels)
        optimizer.zero_grad()
        scaler.scale(loss * factor(run.step)).backward()
        scaler.step(optimizer)
        scaler.update()
        run.log({"loss": loss})


def scaled(run: otel_train.Run) -> None:
    """float16 with a loss scaler, which finds its scale and tries a larger one each sixty steps."""
    _scaled(run, lambda step: 1.0)


def overflowing(run: otel_train.Run) -> None:
    """From step 200 on the loss overflows in nearly every step, whatever its scale."""
    _scaled(run, lambda step: 1.0 if step < 200 or step % 8 == 0 else float("inf"))


# The data -------------------------------------------------------------------------------------------------------------


class Augmented(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """The digits with an augmentation that takes its time."""

    def __init__(self, delay_s: float) -> None:
        self.tensors = digits().tensors
        self.delay_s = delay_s

    def __len__(self) -> int:
        return len(self.tensors[0])

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        image, label = self.tensors[0][index], self.tensors[1][index]
        return self.augment(image), label

    def augment(self, image: torch.Tensor) -> torch.Tensor:
        """Add some noise."""
        with otel_train.augmentation():
            time.sleep(self.delay_s)
            return image + 0.1 * torch.randn_like(image)


def _loaded(run: otel_train.Run, delay_s: float, step_s: float) -> None:
    def work(step: int) -> None:
        time.sleep(step_s)

    loader = DataLoader(Augmented(delay_s), 32, shuffle=True, num_workers=2, persistent_workers=True)
    fit(run, network(2, nn.ReLU), lr=0.01, steps=300, loader=loader, before=work)


def quick_loader(run: otel_train.Run) -> None:
    """Two workers make batches faster than training takes them."""
    _loaded(run, 0.0002, 0.05)


def slow_loader(run: otel_train.Run) -> None:
    """Augmentation takes 12 ms a sample: two workers make five batches a second, where training could take twenty."""
    _loaded(run, 0.012, 0.05)


def _checked(run: otel_train.Run, change: Callable[[int, torch.Tensor], torch.Tensor]) -> None:
    model = network(2, nn.ReLU)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for images, labels in batches(run, DataLoader(digits(), 64, shuffle=True), FEWER_STEPS):
        images = change(run.step, images)
        run.check_samples(images.reshape(-1, 1, 8, 8), labels=labels, every=EVERY)
        loss = nn.functional.cross_entropy(model(images.nan_to_num()), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.log({"loss": loss})


def steady_samples(run: otel_train.Run) -> None:
    """Shuffled digits."""
    _checked(run, lambda step, images: images)


def drifting_samples(run: otel_train.Run) -> None:
    """From step 150 on the pictures become brighter and flatter, and from step 300 on two of a batch are empty."""

    def change(step: int, images: torch.Tensor) -> torch.Tensor:
        share = min(1.0, max(0, step - 150) / 200)
        images = images * (1 - 0.5 * share) + 1.5 * share
        if step >= 300:
            images[:2] = 0.0
        return images

    _checked(run, change)


# Ranks and memory -----------------------------------------------------------------------------------------------------


def _ranks(run: otel_train.Run, slow_s: float) -> None:
    model = nn.parallel.DistributedDataParallel(network(2, nn.ReLU))
    rank = torch.distributed.get_rank()

    def work(step: int) -> None:
        time.sleep(0.05 + (slow_s if rank == 2 and step > 60 else 0.0))

    fit(run, model, lr=0.01, steps=300, before=work)


def even_ranks(run: otel_train.Run) -> None:
    """Three processes that work alike."""
    _ranks(run, 0.0)


def straggler(run: otel_train.Run) -> None:
    """The last of three processes takes 60 ms longer for each step."""
    _ranks(run, 0.06)


def _remembered(run: otel_train.Run, size: int, seconds: float) -> None:
    kept: list[torch.Tensor] = []
    pause_s = 0.4

    def work(step: int) -> None:
        kept.append(torch.ones(size))
        time.sleep(pause_s)

    fit(run, network(2, nn.ReLU), lr=0.01, steps=int(seconds / pause_s), before=work)


def steady_memory(run: otel_train.Run) -> None:
    """Seven minutes in which nothing is kept: the growth is known after six."""
    _remembered(run, 1, 440)


def leak(run: otel_train.Run) -> None:
    """Each step keeps 400 KB, as a list of losses with their graphs does."""
    _remembered(run, 102_400, 440)


RUNS: dict[str, Callable[[otel_train.Run], None]] = {
    "healthy": healthy,
    "exploding": exploding,
    "vanishing": vanishing,
    "frozen": frozen,
    "decaying": decaying,
    "dead": dead,
    "scaled": scaled,
    "overflowing": overflowing,
    "quick-loader": quick_loader,
    "slow-loader": slow_loader,
    "steady-samples": steady_samples,
    "drifting-samples": drifting_samples,
    "even-ranks": even_ranks,
    "straggler": straggler,
    "steady-memory": steady_memory,
    "leak": leak,
}
# To be started by torchrun with three processes.
OF_RANKS = ("even-ranks", "straggler")


def main() -> None:
    """Train one of the runs; its folder is `DIR`/NAME."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=RUNS)
    parser.add_argument("--dir", default="build/sick")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.name in OF_RANKS:
        torch.distributed.init_process_group("gloo")
    # The quick ones last seconds, so the machine is read each second.
    interval_s = 5 if args.name in ("steady-memory", "leak") else 1
    root = os.path.join(args.dir, args.name)
    with otel_train.init("sick-runs", name=args.name, dir=root, seed=7, sample_interval_s=interval_s, git=False) as run:
        RUNS[args.name](run)
    if args.name in OF_RANKS:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()

"""Trains on scikit-learn's handwritten digits with several processes (DistributedDataParallel), recorded as one run.

torchrun --nproc-per-node 4 --max-restarts 1 examples/digits_ddp.py

Every process calls init(): rank 0 records what is common, each rank its own step times, waits, machine and GPU. Where
torchrun starts the processes anew, they go on from the last checkpoint, as the next attempt of the same run.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import sklearn.datasets
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import otel_train


def load_splits(seed: int) -> tuple[TensorDataset, TensorDataset]:
    """Return training and validation images (n, 1, 8, 8) from 0 to 1 with their digits; the same on each rank."""
    images, digits = sklearn.datasets.load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(digits))
    pixels = torch.from_numpy(images[order].astype(np.float32) / 16).view(-1, 1, 8, 8)
    labels = torch.from_numpy(digits[order])
    return TensorDataset(pixels[360:], labels[360:]), TensorDataset(pixels[:360], labels[:360])


def build_model() -> nn.Module:
    """Return a network from images (n, 1, 8, 8) to ten logits each, with batch norm, whose buffers DDP sends around."""
    convolutions = (nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2))
    return nn.Sequential(*convolutions, nn.Flatten(), nn.Linear(16 * 4 * 4, 64), nn.ReLU(), nn.Linear(64, 10))


@torch.no_grad()
def evaluate(run: otel_train.Run, model: nn.Module, validation: TensorDataset) -> None:
    """Log loss and accuracy on the validation images; rank 0 stores them for all."""
    model.eval()
    images, digits = (tensor.to(next(model.parameters()).device) for tensor in validation.tensors)
    logits = model(images)
    accuracy = (logits.argmax(1) == digits).float().mean()
    run.log({"loss": nn.functional.cross_entropy(logits, digits), "accuracy": accuracy}, split="val")
    model.train()


def train(run: otel_train.Run, args: argparse.Namespace, device: torch.device) -> None:
    """Train this rank's share of each epoch, and save the model after it."""
    training, validation = load_splits(args.seed)
    run.log_dataset("digits", training, labels=training.tensors[1])
    sampler: DistributedSampler = DistributedSampler(training, seed=args.seed)
    loader = DataLoader(training, args.batch_size, sampler=sampler)
    model = build_model().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    first_epoch = 0
    path = Path(args.output) / run.id / "last.pt"
    if path.exists():
        state = torch.load(path, map_location=device, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first_epoch = state["epoch"] + 1
    parallel = DistributedDataParallel(model, device_ids=[device] if device.type == "cuda" else None)
    for epoch in run.epochs(args.epochs, start=first_epoch):
        sampler.set_epoch(epoch)
        for images, digits in run.steps(loader):
            loss = nn.functional.cross_entropy(parallel(images.to(device)), digits.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if run.rank == 0:
                run.log({"loss": loss})
        evaluate(run, model, validation)
        if run.rank == 0:
            path.parent.mkdir(parents=True, exist_ok=True)
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
            run.save_checkpoint(path, state)
        dist.barrier()


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=5, help="epochs to train (%(default)s)")
    parser.add_argument("--lr", type=float, default=0.05, help="learning rate (%(default)s)")
    parser.add_argument("--batch-size", type=int, default=16, help="images a step of one rank (%(default)s)")
    parser.add_argument("--seed", type=int, default=7, help="of Python, NumPy and torch (%(default)s)")
    parser.add_argument("--output", default="build/digits_ddp", help="folder of the models (%(default)s)")
    return parser.parse_args()


def main() -> None:
    args = parse_arguments()
    torch.set_num_threads(1)
    on_gpu = torch.cuda.is_available()
    dist.init_process_group("nccl" if on_gpu else "gloo")
    with otel_train.init("digits-ddp", config=args, seed=args.seed, sample_interval_s=1) as run:
        device = torch.device(f"cuda:{dist.get_rank() % torch.cuda.device_count()}" if on_gpu else "cpu")
        if on_gpu:
            torch.cuda.set_device(device)
        train(run, args, device)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

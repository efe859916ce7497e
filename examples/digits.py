"""Trains a small convolutional network on scikit-learn's handwritten digits, recorded from raw data to test result.

python examples/digits.py --help    lists the options; without any it takes about 20 seconds
"""

from __future__ import annotations

import argparse
import logging
import time
from pathlib import Path

import numpy as np
import sklearn.datasets
import torch
from sklearn.metrics import precision_recall_fscore_support
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import otel_train

log = logging.getLogger("digits")
RAW = Path(sklearn.datasets.__file__).parent / "data" / "digits.csv.gz"  # what load_digits reads


def preprocess(run: otel_train.Run, folder: Path, args: argparse.Namespace) -> dict[str, TensorDataset]:
    """Drop abnormal images (8 x 8 pixels from 0 to 16), scale the rest to 0 to 1, and write each split to a file."""
    with run.stage(
        "preprocess", inputs=RAW, code=__file__, parameters={"sigmas": args.sigmas, "seed": args.seed}
    ) as stage:
        images, digits = sklearn.datasets.load_digits(return_X_y=True)
        images = images.astype(np.float32) / 16
        centers = np.stack([images[digits == digit].mean(axis=0) for digit in range(10)])
        distance = np.linalg.norm(images - centers[digits], axis=1)
        kept = distance < distance.mean() + args.sigmas * distance.std()
        dropped = {"far from the rest of its class": int((~kept).sum())}
        images, digits = images[kept], digits[kept]
        run.log_dataset("digits", images, labels=digits, dropped=dropped, path=RAW)

        rest, test = train_test_split(np.arange(len(digits)), test_size=0.2, stratify=digits, random_state=args.seed)
        train, val = train_test_split(rest, test_size=0.2, stratify=digits[rest], random_state=args.seed)
        splits = {}
        for name, rows in {"train": train, "val": val, "test": test}.items():
            path = folder / f"{name}.npz"
            np.savez(path, images=images[rows], digits=digits[rows])
            stage.output(path)
            pixels = torch.from_numpy(images[rows]).view(-1, 1, 8, 8)
            splits[name] = TensorDataset(pixels, torch.from_numpy(digits[rows]))
    for name, split in splits.items():
        run.log_dataset(name, split, labels=split.tensors[1], sampling="stratified", path=folder / f"{name}.npz")
    return splits


def build_model() -> nn.Module:
    """Return a network from images (n, 1, 8, 8) to ten logits each, with ReLU between its layers."""
    convolutions = (nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU())
    head = (nn.Flatten(), nn.Dropout(0.3), nn.Linear(32 * 4 * 4, 64), nn.ReLU(), nn.Linear(64, 10))
    return nn.Sequential(*convolutions, nn.MaxPool2d(2), *head)


def train_epoch(run: otel_train.Run, model: nn.Module, optimizer: torch.optim.Optimizer, loader: DataLoader) -> None:
    """Go once through the training data; each step logs loss, accuracy and gradient norm."""
    model.train()
    for images, digits in run.steps(loader):
        run.check_samples(images, labels=digits, every=50, value_range=(0, 1))
        with run.phase("model_forward"):
            logits = model(images)
            loss = nn.functional.cross_entropy(logits, digits)
        with run.phase("model_backward"):
            optimizer.zero_grad()
            loss.backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), run.config["clip"])
        with run.phase("optimizer"):
            optimizer.step()
        accuracy = (logits.argmax(1) == digits).float().mean()
        run.log({"loss": loss, "accuracy": accuracy, "grad_norm": norm})
        if run.step % run.config["log_every"] == 0:
            log.debug("step %d: loss %.4f, accuracy %.3f", run.step, loss.item(), accuracy.item())
        time.sleep(run.config["delay"])


@torch.no_grad()
def evaluate(run: otel_train.Run, model: nn.Module, loader: DataLoader, split: str) -> dict[str, float]:
    """Return and log loss, accuracy, and the classes' mean precision, recall and F1 over a whole split."""
    model.eval()
    batches = [(model(images), digits) for images, digits in run.steps(loader, split=split)]
    logits, digits = (torch.cat(part) for part in zip(*batches, strict=True))
    predicted = logits.argmax(1)
    precision, recall, f1, _ = precision_recall_fscore_support(digits, predicted, average="macro", zero_division=0)
    loss, accuracy = nn.functional.cross_entropy(logits, digits), (predicted == digits).float().mean()
    metrics = {"loss": loss.item(), "accuracy": accuracy.item(), "precision": precision, "recall": recall, "f1": f1}
    run.log(metrics, split=split)
    return metrics


def train(run: otel_train.Run, model: nn.Module, loaders: dict[str, DataLoader], best_path: Path) -> None:
    """Train until the validation loss has not fallen for `patience` epochs; the best model so far is saved."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=run.config["lr"])
    run.watch(model, optimizer, every=50)  # a short run: the default of 100 would leave few samplings
    best_loss, best_epoch = float("inf"), 0
    for epoch in run.epochs(run.config["epochs"]):
        train_epoch(run, model, optimizer, loaders["train"])
        metrics = evaluate(run, model, loaders["val"], "val")
        log.info("epoch %2d: val loss %.4f, val accuracy %.4f", epoch, metrics["loss"], metrics["accuracy"])
        if metrics["loss"] < best_loss:
            best_loss, best_epoch = metrics["loss"], epoch
            run.save_checkpoint(best_path, model.state_dict(), best=True)
        elif epoch - best_epoch >= run.config["patience"]:
            run.early_stop(f"no epoch after {best_epoch} had a val loss below {best_loss:.4f}")
            break


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=40, help="epochs to train at most (%(default)s)")
    parser.add_argument("--patience", type=int, default=6, help="epochs to wait for a lower val loss (%(default)s)")
    parser.add_argument("--lr", type=float, default=1e-3, help="learning rate (%(default)s)")
    parser.add_argument("--clip", type=float, default=5.0, help="largest gradient norm (%(default)s)")
    parser.add_argument("--batch-size", type=int, default=32, help="images a step (%(default)s)")
    parser.add_argument("--sigmas", type=float, default=3.0, help="distance at which an image is dropped (%(default)s)")
    parser.add_argument("--seed", type=int, default=7, help="of Python, NumPy and torch (%(default)s)")
    parser.add_argument("--log-every", type=int, default=50, help="steps between two lines of the log (%(default)s)")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds to sleep in each step (%(default)s)")
    parser.add_argument("--dir", help="root folder of the runs ($OTEL_TRAIN_DIR, else ./runs)")
    parser.add_argument("--output", default="build/digits", help="folder of the splits and models (%(default)s)")
    return parser.parse_args()


def main() -> None:
    args = parse_arguments()
    log.setLevel(logging.DEBUG)
    torch.set_num_threads(1)  # faster for a network this small, and the same result each time
    with otel_train.init(
        "digits",
        config=args,
        seed=args.seed,
        dir=args.dir,
        console="pretty",
        sample_interval_s=1,  # a short run: the default of 5 would leave few points of the machine
    ) as run:
        for name in ("accuracy", "precision", "recall", "f1"):
            run.define(name, goal="max")
        folder = Path(args.output) / run.id
        folder.mkdir(parents=True, exist_ok=True)
        splits = preprocess(run, folder, args)
        loaders = {k: DataLoader(split, args.batch_size, shuffle=k == "train") for k, split in splits.items()}
        model, best_path = build_model(), folder / "best.pt"
        with run.stage("train", inputs=[folder / "train.npz", folder / "val.npz"], code=__file__) as stage:
            train(run, model, loaders, best_path)
            stage.output(best_path)
        with run.stage("evaluate", inputs=[folder / "test.npz", best_path], code=__file__):
            model.load_state_dict(torch.load(best_path, weights_only=True))
            result = evaluate(run, model, loaders["test"], "test")
        log.info("test: %s", ", ".join(f"{name} {value:.4f}" for name, value in result.items()))
        log.info("the best model is %s", best_path)


if __name__ == "__main__":
    main()

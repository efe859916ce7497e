"""Trains a small convolutional network on scikit-learn's handwritten digits, recorded from raw data to test result.

python examples/digits.py --help    lists the options; without any it takes about 20 seconds on two CPU cores.
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
RAW = Path(sklearn.datasets.__file__).parent / "data" / "digits.csv.gz"  # 1,797 images of 8 x 8 pixels, and their digit


def preprocess(run: otel_train.Run, folder: Path, seed: int) -> dict[str, TensorDataset]:
    """Drop abnormal images, scale the rest, and write each split to a file of its own."""
    with run.stage("preprocess", inputs=RAW, code=__file__, parameters={"seed": seed, "limit_sigma": 3.0}) as stage:
        table = np.loadtxt(RAW, delimiter=",", dtype=np.float32)
        images, digits = table[:, :-1], table[:, -1].astype(np.int64)
        ink = images.sum(axis=1)
        faint = ink < ink.mean() - 3 * ink.std()
        odd = np.zeros_like(faint)
        for digit in range(10):
            own = digits == digit
            distance = np.linalg.norm(images[own] - images[own].mean(axis=0), axis=1)
            odd[own] = distance > distance.mean() + 3 * distance.std()
        dropped = {"faint": int(faint.sum()), "unlike the others of its class": int((odd & ~faint).sum())}
        images, digits = images[~(faint | odd)] / 16, digits[~(faint | odd)]

        rest, test = train_test_split(np.arange(len(digits)), test_size=0.2, stratify=digits, random_state=seed)
        train, val = train_test_split(rest, test_size=0.2, stratify=digits[rest], random_state=seed)
        splits = {}
        for name, rows in {"train": train, "val": val, "test": test}.items():
            path = folder / f"{name}.npz"
            np.savez(path, images=images[rows], digits=digits[rows])
            stage.output(path)
            splits[name] = TensorDataset(torch.from_numpy(images[rows]).view(-1, 1, 8, 8), torch.from_numpy(digits[rows]))
        run.log_dataset("digits", images, labels=digits, dropped=dropped, path=RAW)
        for name, split in splits.items():
            run.log_dataset(name, split, labels=split.tensors[1], sampling="stratified", path=folder / f"{name}.npz")
    return splits


def build_model() -> nn.Module:
    """Return a network with two convolutions and ReLU between all layers."""
    return nn.Sequential(
        *(nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Dropout(0.25), nn.Linear(64 * 4 * 4, 128), nn.ReLU(), nn.Dropout(0.25), nn.Linear(128, 10)),
    )


def train_epoch(run: otel_train.Run, model: nn.Module, optimizer: torch.optim.Optimizer, loader: DataLoader, args) -> None:
    """Go once through the training data; every step logs its loss, accuracy and gradient norm."""
    model.train()
    for images, digits in run.steps(loader):
        with run.phase("model_forward"):
            logits = model(images)
            loss = nn.functional.cross_entropy(logits, digits)
        with run.phase("model_backward"):
            optimizer.zero_grad()
            loss.backward()
        with run.phase("optimizer"):
            norm = nn.utils.clip_grad_norm_(model.parameters(), args.clip)
            optimizer.step()
        accuracy = (logits.argmax(1) == digits).float().mean()
        run.log({"loss": loss, "accuracy": accuracy, "grad_norm": norm})
        if run.step % args.log_every == 0:
            log.info("step %d: loss %.4f, accuracy %.3f", run.step, loss, accuracy)
        time.sleep(args.delay)


@torch.no_grad()
def evaluate(run: otel_train.Run, model: nn.Module, loader: DataLoader, split: str) -> dict[str, float]:
    """Return loss, accuracy and macro averages over a split, and log them."""
    model.eval()
    logits, digits = map(torch.cat, zip(*((model(x), y) for x, y in run.steps(loader, split=split)), strict=True))
    predicted = logits.argmax(1)
    precision, recall, f1, _ = precision_recall_fscore_support(digits, predicted, average="macro", zero_division=0)
    metrics = {
        "loss": nn.functional.cross_entropy(logits, digits).item(),
        "accuracy": (predicted == digits).float().mean().item(),
        "precision": float(precision),
        "recall": float(recall),
        "f1": float(f1),
    }
    run.log(metrics, split=split)
    return metrics


def train(run: otel_train.Run, model: nn.Module, loaders: dict[str, DataLoader], best_path: Path, args) -> None:
    """Train until the validation loss has not fallen for `--patience` epochs; the best model is saved."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    best_loss, best_epoch = float("inf"), 0
    for epoch in run.epochs(args.epochs):
        train_epoch(run, model, optimizer, loaders["train"], args)
        metrics = evaluate(run, model, loaders["val"], "val")
        log.info("epoch %d: validation loss %.4f, accuracy %.4f", epoch, metrics["loss"], metrics["accuracy"])
        if metrics["loss"] < best_loss:
            best_loss, best_epoch = metrics["loss"], epoch
            run.save_checkpoint(best_path, model.state_dict(), best=True)
        elif epoch - best_epoch >= args.patience:
            run.early_stop(f"validation loss has not fallen below {best_loss:.4f} for {args.patience} epochs")
            break


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=60, help="most epochs to train (default: %(default)s)")
    parser.add_argument("--patience", type=int, default=10, help="epochs without a better validation loss before the end")
    parser.add_argument("--lr", type=float, default=1e-3, help="learning rate (default: %(default)s)")
    parser.add_argument("--clip", type=float, default=5.0, help="largest gradient norm (default: %(default)s)")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--log-every", type=int, default=100, help="steps between two lines of the log")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds to wait in each step, to watch a longer run")
    parser.add_argument("--dir", default=None, help="root folder of the runs (default: $OTEL_TRAIN_DIR, else ./runs)")
    parser.add_argument("--output", type=Path, default=Path("build/digits"), help="where splits and models are written")
    args = parser.parse_args()

    with otel_train.init("digits", config=args, seed=args.seed, dir=args.dir, console="pretty") as run:
        for name in ("accuracy", "precision", "recall", "f1"):
            run.define(name, goal="max")
        folder = args.output / run.id
        folder.mkdir(parents=True, exist_ok=True)
        splits = preprocess(run, folder, args.seed)
        loaders = {k: DataLoader(v, args.batch_size, shuffle=k == "train") for k, v in splits.items()}
        model, best_path = build_model(), folder / "best.pt"
        with run.stage("train", inputs=[folder / "train.npz", folder / "val.npz"], outputs=best_path, code=__file__):
            train(run, model, loaders, best_path, args)
        with run.stage("evaluate", inputs=[folder / "test.npz", best_path], code=__file__):
            model.load_state_dict(torch.load(best_path, weights_only=True))
            result = evaluate(run, model, loaders["test"], "test")
        log.info("test: %s", ", ".join(f"{name} {value:.4f}" for name, value in result.items()))


if __name__ == "__main__":
    main()

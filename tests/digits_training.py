"""One training on handwritten digits, four times: by a loop by hand, Lightning, Transformers' Trainer and Accelerate.

The same model, seed, batches in the same order, plain SGD; each saves after every epoch and tests at the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import otel_train

BATCH, EPOCHS, LR, EVERY = 64, 2, 0.1, 4
SIZES = {"train": 512, "val": 256, "test": 192}
QUIET = {"git": False, "sample_machine": False}


class Net(nn.Module):
    """From images (n, 64) to logits (n, 10)."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(11)
        self.net = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))

    def forward(self, pixels: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        logits = self.net(pixels)
        if labels is None:
            return {"logits": logits}
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def splits() -> dict[str, TensorDataset]:
    images, digits = load_digits(return_X_y=True)
    pixels, labels = torch.from_numpy((images / 16).astype(np.float32)), torch.from_numpy(digits)
    places = np.cumsum([0, *SIZES.values()])
    return {
        name: TensorDataset(pixels[first:last], labels[first:last])
        for name, first, last in zip(SIZES, places[:-1], places[1:], strict=True)
    }


def loaders(batch_size: int = BATCH) -> dict[str, DataLoader[Any]]:
    return {name: DataLoader(split, batch_size) for name, split in splits().items()}


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=LR)


def share_right(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return (logits.argmax(1) == labels).float().mean()


@dataclass
class Best:
    """Tells whether a loss is the lowest so far."""

    loss: float = float("inf")

    def is_new(self, loss: float) -> bool:
        better = loss < self.loss
        self.loss = min(loss, self.loss)
        return better


@torch.no_grad()
def evaluate(run: Any, model: nn.Module, loader: Any, split: str) -> float:
    model.eval()
    found = [(model(pixels)["logits"], labels) for pixels, labels in run.steps(loader, split=split)]
    logits, labels = (torch.cat(part) for part in zip(*found, strict=True))
    loss = nn.functional.cross_entropy(logits, labels)
    run.log({"loss": loss, "accuracy": share_right(logits, labels)}, split=split)
    return float(loss)


def by_hand(folder: Path, root: Path) -> Path:
    torch.manual_seed(5)
    data, model, best = loaders(), Net(), Best()
    optimizer = sgd(model)
    with otel_train.init("digits", dir=root, config={"lr": LR}, **QUIET) as run:
        with run.stage("fit"):
            run.watch(model, optimizer, every=EVERY)
            for epoch in run.epochs(EPOCHS):
                model.train()
                for pixels, labels in run.steps(data["train"], start=1 if epoch == 0 else None):
                    with run.phase("model_forward"):
                        loss = model(pixels, labels)["loss"]
                    with run.phase("model_backward"):
                        optimizer.zero_grad()
                        loss.backward()
                    with run.phase("optimizer"):
                        optimizer.step()
                    run.log({"loss": loss, "lr": LR})
                is_best = best.is_new(evaluate(run, model, data["val"], "val"))
                run.save_checkpoint(folder / f"epoch-{epoch}.pt", model.state_dict(), best=is_best)
            run.unwatch(model)
        with run.stage("test"):
            evaluate(run, model, data["test"], "test")
    return run.path


def by_lightning(folder: Path, root: Path) -> Path:
    import lightning.pytorch as pl

    from otel_train.integrations.lightning import OtelTrainLogger

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.save_hyperparameters({"lr": LR})
            self.net = Net().net

        def step(self, batch: Any, split: str) -> torch.Tensor:
            logits = self.net(batch[0])
            loss = nn.functional.cross_entropy(logits, batch[1])
            self.log(f"{split}_loss", loss)
            if split != "train":
                self.log(f"{split}_accuracy", share_right(logits, batch[1]))
            return loss

        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            return self.step(batch, "train")

        def validation_step(self, batch: Any, index: int) -> None:
            self.step(batch, "val")

        def test_step(self, batch: Any, index: int) -> None:
            self.step(batch, "test")

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return sgd(self)

    torch.manual_seed(5)
    data, model = loaders(), Module()
    logger = OtelTrainLogger("digits", dir=root, watch=EVERY, **QUIET)
    trainer = pl.Trainer(
        max_epochs=EPOCHS,
        accelerator="cpu",
        logger=logger,
        log_every_n_steps=1,
        callbacks=[pl.callbacks.ModelCheckpoint(folder, monitor="val_loss", save_top_k=-1)],
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, data["train"], data["val"])
    trainer.test(model, data["test"], verbose=False)
    path = logger.experiment.path
    logger.finish()
    return path


def trainer_of(folder: Path, callbacks: list[Any], **arguments: Any) -> Any:
    """Return a Trainer of Transformers for the digits."""
    import transformers

    def collate(rows: list[Any]) -> dict[str, torch.Tensor]:
        return {"pixels": torch.stack([row[0] for row in rows]), "labels": torch.stack([row[1] for row in rows])}

    given: dict[str, Any] = {
        "num_train_epochs": EPOCHS,
        "per_device_train_batch_size": BATCH,
        "per_device_eval_batch_size": BATCH,
        "logging_steps": 1,
        "eval_strategy": "epoch",
        "save_strategy": "epoch",
        "metric_for_best_model": "loss",
        "greater_is_better": False,
        "max_grad_norm": 0.0,
        "lr_scheduler_type": "constant",
        "train_sampling_strategy": "sequential",
        "remove_unused_columns": False,
        "label_names": ["labels"],
        "report_to": "none",
        "disable_tqdm": True,
        "use_cpu": True,
        "dataloader_pin_memory": False,
        "seed": 5,
        **arguments,
    }
    data, model = splits(), Net()
    optimizer = sgd(model)
    return transformers.Trainer(
        model=model,
        args=transformers.TrainingArguments(str(folder), **given),
        train_dataset=data["train"],
        eval_dataset=data["val"],
        data_collator=collate,
        compute_metrics=lambda found: {"accuracy": float((found.predictions.argmax(1) == found.label_ids).mean())},
        optimizers=(optimizer, torch.optim.lr_scheduler.ConstantLR(optimizer, 1.0)),
        callbacks=callbacks,
    )


def by_transformers(folder: Path, root: Path) -> Path:
    from otel_train.integrations.transformers import OtelTrainCallback

    callback = OtelTrainCallback("digits", dir=root, watch=EVERY, **QUIET)
    trainer = trainer_of(folder, [callback])
    trainer.train()
    run = callback.run
    with run.stage("test"):
        trainer.evaluate(splits()["test"], metric_key_prefix="test")
    callback.finish()
    return run.path


def by_accelerate(folder: Path, root: Path) -> Path:
    from accelerate import Accelerator

    from otel_train.integrations.accelerate import OtelTrainTracker

    torch.manual_seed(5)
    tracker = OtelTrainTracker("digits", dir=root, watch=EVERY, **QUIET)
    accelerator = Accelerator(cpu=True, log_with=tracker)
    model, best = Net(), Best()
    optimizer = sgd(model)
    accelerator.init_trackers("digits", config={"lr": LR})
    data = dict(zip(SIZES, accelerator.prepare(*loaders().values()), strict=True))
    model, optimizer = accelerator.prepare(model, optimizer)
    run = accelerator.get_tracker("otel_train", unwrap=True)
    with run.stage("fit"):
        tracker.attach(accelerator, model, optimizer)
        for epoch in run.epochs(EPOCHS):
            model.train()
            for pixels, labels in run.steps(data["train"], start=1 if epoch == 0 else None):
                with run.phase("model_forward"):
                    loss = model(pixels, labels)["loss"]
                optimizer.zero_grad()
                accelerator.backward(loss)
                with run.phase("optimizer"):
                    optimizer.step()
                accelerator.log({"loss": loss, "lr": LR})
            is_best = best.is_new(evaluate(run, model, data["val"], "val"))
            with run.writing_checkpoint(folder / f"epoch-{epoch}.pt", best=is_best) as writing:
                accelerator.save(accelerator.unwrap_model(model).state_dict(), writing.path)
    with run.stage("test"):
        evaluate(run, model, data["test"], "test")
    accelerator.end_training()
    return run.path

"""Trains a small network on handwritten digits with Lightning: the logger is all that it takes to be recorded."""

import lightning.pytorch as pl
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

from otel_train.integrations.lightning import OtelTrainLogger


class Digits(pl.LightningModule):
    def __init__(self, lr: float = 1e-3, hidden: int = 64) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.network = nn.Sequential(nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, 10))

    def step(self, batch: tuple[torch.Tensor, torch.Tensor], split: str) -> torch.Tensor:
        pixels, digits = batch
        logits = self.network(pixels)
        loss = nn.functional.cross_entropy(logits, digits)
        self.log_dict({f"{split}_loss": loss, f"{split}_accuracy": (logits.argmax(1) == digits).float().mean()})
        return loss

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> torch.Tensor:
        return self.step(batch, "train")

    def validation_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> None:
        self.step(batch, "val")

    def test_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> None:
        self.step(batch, "test")

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=self.hparams["lr"])


def main() -> None:
    pl.seed_everything(7)
    torch.set_num_threads(1)  # faster for a network this small
    images, digits = load_digits(return_X_y=True)
    data = TensorDataset(torch.from_numpy(images).float() / 16, torch.from_numpy(digits))
    train, val, test = random_split(data, [0.64, 0.16, 0.2])
    logger = OtelTrainLogger("digits", tags=["lightning"])
    trainer = pl.Trainer(
        max_epochs=8,
        logger=logger,
        log_every_n_steps=1,
        callbacks=[
            pl.callbacks.EarlyStopping("val_loss", patience=3),
            pl.callbacks.ModelCheckpoint("build/lightning", monitor="val_loss"),
        ],
    )
    model = Digits()
    trainer.fit(model, DataLoader(train, 32, shuffle=True), DataLoader(val, 256))
    trainer.test(model, DataLoader(test, 256), ckpt_path="best")


if __name__ == "__main__":
    main()

"""Trains a small network on handwritten digits with Transformers' Trainer: the callback is all that it takes."""

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset, random_split
from transformers import EarlyStoppingCallback, EvalPrediction, Trainer, TrainingArguments

from otel_train.integrations.transformers import OtelTrainCallback


class Digits(nn.Module):
    def __init__(self, hidden: int = 64) -> None:
        super().__init__()
        self.network = nn.Sequential(nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, 10))

    def forward(self, pixels: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.network(pixels)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def collate(rows: list[tuple[torch.Tensor, torch.Tensor]]) -> dict[str, torch.Tensor]:
    pixels, labels = zip(*rows, strict=True)
    return {"pixels": torch.stack(pixels), "labels": torch.stack(labels)}


def compute_metrics(found: EvalPrediction) -> dict[str, float]:
    return {"accuracy": float((np.argmax(found.predictions, axis=1) == found.label_ids).mean())}


def main() -> None:
    torch.manual_seed(7)
    torch.set_num_threads(1)  # faster for a network this small
    images, digits = load_digits(return_X_y=True)
    data = TensorDataset(torch.from_numpy(images).float() / 16, torch.from_numpy(digits))
    train, val, test = random_split(data, [0.64, 0.16, 0.2])
    arguments = TrainingArguments(
        "build/transformers",
        num_train_epochs=8,
        per_device_train_batch_size=32,
        per_device_eval_batch_size=256,
        learning_rate=3e-3,
        logging_steps=1,
        eval_strategy="epoch",
        save_strategy="epoch",
        save_total_limit=1,
        dataloader_pin_memory=torch.cuda.is_available(),
        load_best_model_at_end=True,
        metric_for_best_model="loss",
        report_to="none",
        disable_tqdm=True,
    )
    trainer = Trainer(
        model=Digits(),
        args=arguments,
        train_dataset=train,
        eval_dataset=val,
        data_collator=collate,
        compute_metrics=compute_metrics,
        callbacks=[EarlyStoppingCallback(3), OtelTrainCallback("digits", tags=["transformers"])],
    )
    trainer.train()
    print(trainer.predict(test).metrics)


if __name__ == "__main__":
    main()

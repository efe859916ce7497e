"""Trains a small network on handwritten digits with Accelerate: the loop goes through the run of the tracker."""

import torch
from accelerate import Accelerator
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

from otel_train.integrations.accelerate import OtelTrainTracker

CONFIG = {"lr": 1e-3, "batch_size": 32, "epochs": 5, "accumulate": 2}


def main() -> None:
    torch.manual_seed(7)
    torch.set_num_threads(1)  # faster for a network this small
    images, digits = load_digits(return_X_y=True)
    data = TensorDataset(torch.from_numpy(images).float() / 16, torch.from_numpy(digits))
    splits = random_split(data, [0.8, 0.2])
    network = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))

    tracker = OtelTrainTracker("digits", tags=["accelerate"])
    accelerator = Accelerator(log_with=tracker, gradient_accumulation_steps=CONFIG["accumulate"])
    accelerator.init_trackers("digits", config=CONFIG)
    model, optimizer, train, val = accelerator.prepare(
        network,
        torch.optim.AdamW(network.parameters(), lr=CONFIG["lr"]),
        *(DataLoader(split, CONFIG["batch_size"], shuffle=True) for split in splits),
    )
    run = tracker.tracker
    tracker.attach(accelerator, model, optimizer)
    for epoch in run.epochs(CONFIG["epochs"]):
        model.train()
        for pixels, labels in run.steps(train, accumulate=CONFIG["accumulate"]):
            with accelerator.accumulate(model):
                with run.phase("model_forward"):
                    loss = nn.functional.cross_entropy(model(pixels), labels)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            accelerator.log({"loss": loss})
        model.eval()
        right = []
        for pixels, labels in run.steps(val, split="val"):
            with torch.no_grad():
                right.append(accelerator.gather_for_metrics(model(pixels).argmax(1) == labels))
        accelerator.log({"val_accuracy": torch.cat(right).float().mean()})
        accelerator.save_state(f"build/accelerate/epoch-{epoch}")
    accelerator.end_training()


if __name__ == "__main__":
    main()

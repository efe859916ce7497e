"""Fits a line to points in plain Python: no loop wrappers, no torch; numbers and messages are recorded all the same."""

import logging
import random

import otel_train

run = otel_train.init("line", config={"lr": 0.05, "steps": 300}, seed=1)
logging.basicConfig(level=logging.INFO, format="%(message)s")

points = [(x / 50, 3.0 * x / 50 - 1.0 + random.gauss(0, 0.1)) for x in range(100)]
slope, offset = 0.0, 0.0
for step in range(run.config["steps"]):
    errors = [slope * x + offset - y for x, y in points]
    slope -= run.config["lr"] * 2 * sum(error * x for error, (x, _) in zip(errors, points, strict=True)) / len(points)
    offset -= run.config["lr"] * 2 * sum(errors) / len(points)
    loss = sum(error**2 for error in errors) / len(points)
    run.log({"loss": loss, "slope": slope, "offset": offset}, step=step)
    if step % 50 == 0:
        logging.info("step %d: loss %.4f", step, loss)

run.save_checkpoint("build/line.pkl", {"slope": slope, "offset": offset})
run.finish()

"""A training that falls ill in one way and gets well again once a file called `well` appears; `stop` ends it.

python ill_script.py plateau|overfit|nonfinite|stalled|healthy [THRESHOLD=NUMBER…]
"""

import os
import sys
import time

import otel_train

# So that a minute is enough: a stall after three seconds, a plateau after 100 steps.
THRESHOLDS = {"stalled_min_s": 3, "stalled_factor": 2}
STEP_S = 0.02
WELL_STEPS = 150


def main() -> None:
    kind = sys.argv[1]
    # Where training and validation drift apart, the loss of validation stands still as well.
    thresholds = THRESHOLDS if kind == "overfit" else {**THRESHOLDS, "plateau_steps": 100}
    given = (pair.split("=") for pair in sys.argv[2:])
    thresholds = {**thresholds, **{name: float(value) for name, value in given}}
    with otel_train.init("ill", name=kind, git=False, console="off", alerts=thresholds) as run:
        print(run.id, flush=True)
        well_since = 0
        for step in run.steps(range(1_000_000)):
            if os.path.exists("stop"):
                break
            well_since = well_since or (step if os.path.exists("well") else 0)
            ill = step >= WELL_STEPS and not well_since
            if ill and kind == "stalled" and step == WELL_STEPS:
                while not os.path.exists("well"):
                    time.sleep(0.05)  # between two looks for the word to go on
            falling = 1000.0 / (1000 + step)
            train = falling
            if kind == "plateau" and step >= WELL_STEPS:
                train = 0.5 * falling if well_since else 1.0
            if kind == "nonfinite" and step == WELL_STEPS:
                train = float("nan")
            run.log({"loss": train})
            if step % 10 == 9 and kind in ("overfit", "healthy"):
                run.log({"loss": falling + 0.5 if ill and kind == "overfit" else falling}, split="val")
            time.sleep(STEP_S)  # the pace of a training


if __name__ == "__main__":
    main()

"""The training of the drills: makes steps of ten values, records and spans, until a file called stop appears.

python drill_script.py STEPS_PER_SECOND [MOST_STEPS]
"""

import logging
import math
import os
import sys
import time

import otel_train

log = logging.getLogger("drill")


def main() -> None:
    pause_s = 1.0 / float(sys.argv[1])
    most = int(sys.argv[2]) if len(sys.argv) > 2 else 1_000_000
    log.setLevel(logging.INFO)
    with otel_train.init("drill", git=False, sample_interval_s=1, console="off") as run:
        print(run.id, flush=True)
        with run.stage("train"):
            for step in run.steps(range(most)):
                if os.path.exists("stop"):
                    break
                with run.phase("model_forward"):
                    values = {f"loss_{number}": math.exp(-step / 500) + number for number in range(9)}
                values["loss"] = math.nan if step % 97 == 96 else 1.0 / (1 + step)
                run.log(values)
                if step % 20 == 0:
                    log.info("step %d of the drill", step)
                time.sleep(pause_s)  # the pace of a training


if __name__ == "__main__":
    main()

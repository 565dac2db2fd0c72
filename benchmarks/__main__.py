"""`python -m benchmarks [--new]`: everything, or what an interrupted run left; then the tables."""

from __future__ import annotations

import argparse

from . import scaling, speed, verdicts
from .timing import RESULTS, Results, machine


def main() -> None:
    """Measure, write `results/latest.json`, a figure and the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--new", action="store_true", help="forget earlier measurements")
    parser.add_argument("--only", choices=("dense", "cnn", "scaling"), help="one part")
    arguments = parser.parse_args()
    path = RESULTS / "latest.json"
    if arguments.new:
        path.unlink(missing_ok=True)
    results = Results(path)
    results.once("machine", machine)
    speed.warm()
    if arguments.only in (None, "dense"):
        speed.dense(results)
    if arguments.only in (None, "cnn"):
        speed.convolutional(results)
    if arguments.only in (None, "scaling"):
        scaling.run(results)
        scaling.figure(results, RESULTS / "scaling.png")
    facts = "\n".join(f"{name}: {value}" for name, value in results.entries["machine"].items())
    tables = (part.table(results) for part in (speed, scaling, verdicts))
    report = "\n".join([facts, *tables]) + "\n"
    (RESULTS / "latest.txt").write_text(report)
    print(report)


if __name__ == "__main__":
    main()

"""Processor time of `import mpt_bayes` beyond `import torch`: median of several new processes, interleaved.

python benchmarks/import_time.py
"""

from __future__ import annotations

import statistics
import subprocess
import sys

PROGRAM = "import time, torch; t = time.process_time(); import {name}; print(time.process_time() - t)"
RUNS = 5


def seconds(name: str) -> float:
    """Of importing `name` in a new process that has torch already."""
    done = subprocess.run([sys.executable, "-c", PROGRAM.format(name=name)], capture_output=True, text=True, check=True)
    return float(done.stdout)


def main() -> None:
    pairs = [(seconds("mpt_bayes"), seconds("torch")) for _ in range(RUNS)]
    ours, nothing = (statistics.median(column) for column in zip(*pairs, strict=True))
    print(f"import mpt_bayes after torch: {ours:.3f} s (importing torch again: {nothing:.3f} s), median of {RUNS}")


if __name__ == "__main__":
    main()

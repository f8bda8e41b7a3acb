"""Compares the runs of sweep_batch.sh and names the batch size to use from now on."""
import json
import sys
from pathlib import Path


def read(folder):
    with open(Path(folder) / "speed.json") as f:
        return json.load(f)


def main():
    runs = [read(folder) for folder in sys.argv[1:]]
    runs.sort(key=lambda r: r["train_steps_per_second"], reverse=True)
    print("batch  it/s")
    for r in runs:
        print(f"{r['batch']:5d}  {r['train_steps_per_second']:.2f}")
    print(f"fastest batch size: {runs[0]['batch']}")


if __name__ == "__main__":
    main()

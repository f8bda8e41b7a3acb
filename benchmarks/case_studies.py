"""Case studies of `dynotune bench`, each one command, in one call on a GPU: what people believe of a setting, measured.

    python benchmarks/make_model.py qwen2.5-7b --tokenizer SHARED/tokenizers/qwen-152k --out models/qwen2.5-7b
    python benchmarks/case_studies.py --out OUT [--only liger,ladder]       on the GPU, with `data/` beside `models/`
    python benchmarks/case_studies.py --out OUT --rehearse                  the same commands on the CPU, of a tiny model

A case is a bench of its own; its result is kept as OUT/CASE.json with its command and commit.
"""

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
LARGE = HERE / "configs" / "seven-b-lora.yaml"

SHORT = ("--no_memory", "--parity", "off", "--pairs", "6", "--most_pairs", "6")
"""Six pairs of a 7B shape take about 100 s in all on one H200; its gate and peak memory would take 150 s more."""

CASES: dict[str, tuple[str, ...]] = {
    "liger": ("--set", "use_liger_kernel=true", *SHORT),
    "batch": ("--sweep", "per_device_train_batch_size=2,8,32", "--no_memory", "--pairs", "6", "--most_pairs", "6"),
    "packing": ("--set", "packing=true", "--no_memory", "--pairs", "6", "--most_pairs", "6"),
    "ladder": ("--ladder", "--budget", "290", *SHORT),
    "attribute": ("--attribute", "--budget", "290", *SHORT),
}
"""By name, the words behind `dynotune bench --config FILE`."""


def tiny(folder: Path) -> Path:
    """A configuration of a tiny model on the CPU, with its files, in `folder`."""
    sys.path.insert(0, str(HERE.parent))
    from tests.tiny import chats, tiny_model, tiny_tokenizer

    tiny_model().save_pretrained(folder / "model")
    tiny_tokenizer().save_pretrained(folder / "model")
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in chats(400)))
    config = folder / "tiny.yaml"
    settings = {
        "model_name_or_path": str(folder / "model"), "dataset_name": str(folder / "rows.jsonl"), "max_length": 256,
        "per_device_train_batch_size": 4, "use_cpu": True, "logging_steps": 1, "report_to": "none", "seed": 17,
    }  # fmt: skip
    config.write_text("".join(f"{key}: {json.dumps(value)}\n" for key, value in settings.items()))
    return config


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", default="liger,batch,packing", help=f"of {', '.join(CASES)}, with commas")
    parser.add_argument("--config", type=Path, default=LARGE)
    parser.add_argument("--rehearse", action="store_true")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    failed = 0
    with tempfile.TemporaryDirectory() as temporary:
        config = tiny(Path(temporary)) if args.rehearse else args.config
        for name in args.only.split(","):
            words = ["bench", "--config", str(config), *CASES[name], "--out", str(Path(temporary) / name)]
            began = time.perf_counter()
            code = subprocess.run([sys.executable, "-m", "dynotune", *words], check=False).returncode
            print(f"{name}: {time.perf_counter() - began:.0f} s, exit code {code}: {shlex.join(words)}", flush=True)
            result = Path(temporary) / name / "bench.json"
            failed += code != 0 or not result.exists()
            if result.exists():
                (args.out / f"{name}.json").write_text(result.read_text().replace(temporary, "WORK"))
    return min(1, failed)


if __name__ == "__main__":
    raise SystemExit(main())

"""Case studies of `dynotune bench`, each one command: what people believe of a setting, measured.

    python -m benchmarks.case_studies --shared SHARED --out OUT [--only liger,ladder] [--budget 570] [--commit COMMIT]
    python -m benchmarks.case_studies --out OUT --rehearse          the same commands on the CPU, of a tiny model

SHARED holds `data`, `tokenizers` and `tiny-lm`; without it the configurations' own paths count. A case's result is kept as
`OUT/case_NAME_DEVICE.json`. A case that is there to its end, of the same commit, is not run again; one that takes longer
than is left of the budget is not begun; one that is cut off leaves the rounds that it had run, marked so.
`python -m benchmarks.case_pages` makes pages of the results in `benchmarks/results/`.
"""

import argparse
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NoReturn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.case_list import CASES, SAME, kept_of
from dynotune.errors import DataError
from dynotune.results.history import write_result
from dynotune.results.result import Result

HERE = Path(__file__).resolve().parent
NEEDS = {
    "seven-b-lora": ("qwen2.5-7b", "tokenizers/qwen-152k", "data/sft/sft_mix.jsonl.gz"),
    "seven-b-dpo": ("qwen2.5-7b", "tokenizers/qwen-152k", "data/preference/preference_mix.jsonl.gz"),
    "23m-full": ("23m", "tiny-lm/stories260K", "data/math/gsm8k_train.jsonl.gz"),
}
"""By configuration the shape, and of SHARED the tokenizer and the rows."""

PROGRAM = (sys.executable, "-m", "dynotune")

GRACE = 20
"""Seconds that a bench has to leave when it was asked to."""


def tiny(folder: Path, preferences: bool) -> Path:
    """A configuration of a tiny model on the CPU, with its files, in `folder`."""
    from tests.tiny import chats, completions, tiny_model, tiny_tokenizer

    tiny_model().save_pretrained(folder / "model")
    tiny_tokenizer().save_pretrained(folder / "model")
    rows = chats(400)
    if preferences:
        rows = [
            {"prompt": one["prompt"], "chosen": one["completion"], "rejected": other["completion"]}
            for one, other in pairwise(completions(401))
        ]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = folder / "tiny.yaml"
    settings = {
        "model_name_or_path": str(folder / "model"), "dataset_name": str(folder / "rows.jsonl"), "max_length": 256,
        "per_device_train_batch_size": 4, "use_cpu": True, "logging_steps": 1, "report_to": "none", "seed": 17,
    }  # fmt: skip
    config.write_text("".join(f"{key}: {json.dumps(value)}\n" for key, value in settings.items()))
    return config


def config_of(name: str, layers: int | None, shared: Path | None, folder: Path) -> tuple[Path, list[str]]:
    """The configuration, and flags that say where its model and rows are. layers: of the model, all where not said."""
    path = HERE / "configs" / f"{name}.yaml"
    if shared is None:
        return path, []
    from benchmarks.make_model import make

    shape, tokenizer, rows = NEEDS[name]
    called = f"{shape}-{layers}-layers" if layers else shape
    model = make(shape, shared / tokenizer, folder / "models" / called, layers)
    return path, ["--model_name_or_path", str(model), "--dataset_name", str(shared / rows)]


def words_of(name: str, config: Path, flags: Sequence[str], out: Path, folder: Path) -> list[str]:
    """Of `dynotune`."""
    words = []
    for word in CASES[name].words:
        if word == SAME:
            copy = folder / "same-again.yaml"
            copy.write_bytes(config.read_bytes())
            word = str(copy)
        words.append(word)
    return ["bench", "--config", str(config), *flags, *words, "--label", f"case {name}", "--out", str(out)]


def ran(words: Sequence[str], seconds: float | None) -> str:
    """One bench; how it ended, in a few words. Whatever ends this process ends the bench first."""
    process = subprocess.Popen([*PROGRAM, *words])
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return f"cut off after {seconds:.0f} s"
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(GRACE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
    return f"exit code {process.returncode}"


def kept(found: Path, to: Path, commit: str, folders: Mapping[str, Path | None]) -> str:
    """Keep a result under its name, without folders of this machine. Returns what it says."""
    text = found.read_text()
    for word, folder in folders.items():
        if folder is not None:
            text = text.replace(str(folder), word)
    result = Result.model_validate_json(text)
    if result.commit is None and commit:
        result = result.model_copy(update={"commit": commit})
    path = to / f"case_{found.parent.name}_{device_of(result)}.json"
    write_result(result, path)
    return f"{path.name}: {'; '.join(result.notes) if result.cut_off else result.sentence}"


def device_of(result: Result) -> str:
    """`h200`, `cpu`."""
    if str(result.model.get("device", "")).lower().startswith("cpu"):
        return "cpu"
    return re.sub(r"[^a-z0-9]+", "_", str(result.machine.get("device", "")).lower().removeprefix("nvidia ")).strip("_")


def is_there(out: Path, name: str, commit: str) -> bool:
    """To its end, of this commit, and not withdrawn."""
    for path in kept_of(name, out):
        try:
            one = Result.read(path)
        except DataError:
            continue
        whole = not one.cut_off and one.withdrawn is None
        if commit and one.commit and one.commit[:7] == commit[:7] and whole:
            return True
    return False


def run(name: str, args: argparse.Namespace, folder: Path, left: float | None) -> bool:
    """One case. Whether it came to its end."""
    config, flags = (
        (tiny(folder, "dpo" in CASES[name].words), [])
        if args.rehearse
        else config_of(CASES[name].config, CASES[name].layers, args.shared, folder)
    )
    out = args.out / "benches" / name
    (out / "bench.json").unlink(missing_ok=True)
    words = words_of(name, config, flags, out, folder)
    began = time.perf_counter()
    ended = "cut off"
    try:
        ended = ran(words, left)
    finally:
        print(f"{name}: {time.perf_counter() - began:.0f} s, {ended}: dynotune {shlex.join(words)}", flush=True)
        if (out / "bench.json").exists():
            folders = {"SHARED": args.shared, "OUT": args.out, "WORK": folder, "benchmarks": HERE}
            print(kept(out / "bench.json", args.out, args.commit, folders), flush=True)
        else:
            print(f"{name}: nothing was measured", flush=True)
    return ended == "exit code 0"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--shared", type=Path)
    parser.add_argument("--only", default=",".join(CASES), help=f"of {', '.join(CASES)}, with commas")
    parser.add_argument("--budget", type=float, help="seconds for everything")
    parser.add_argument("--commit", default="", help="of the tree, where it is not a git checkout")
    parser.add_argument("--rehearse", action="store_true", help="on the CPU, of a tiny model")
    args = parser.parse_args()
    names = [name for name in args.only.split(",") if name]
    if unknown := [name for name in names if name not in CASES]:
        parser.error(f"no case {', '.join(unknown)}; there are {', '.join(CASES)}")
    args.out.mkdir(parents=True, exist_ok=True)
    args.out, args.shared = args.out.resolve(), args.shared and args.shared.resolve()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    signal.signal(signal.SIGTERM, _leave)
    began, short = time.monotonic(), 0
    with tempfile.TemporaryDirectory() as temporary:
        for name in names:
            left = None if args.budget is None else args.budget - (time.monotonic() - began)
            if is_there(args.out, name, args.commit):
                print(f"{name}: is there", flush=True)
            elif left is not None and left < CASES[name].seconds and not args.rehearse:
                print(f"{name}: not run: {CASES[name].seconds} s expected, {max(0, left):.0f} s left", flush=True)
                short = 1
            else:
                short |= not run(name, args, Path(temporary), left)
    return short


def _leave(number: int, frame: object) -> NoReturn:
    raise SystemExit(128 + number)


if __name__ == "__main__":
    raise SystemExit(main())

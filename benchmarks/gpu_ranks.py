"""Several GPUs beside one: the same losses, what communication costs, how throughput scales; a dead rank ends the job.

    NCCL_NVLS_ENABLE=0 python benchmarks/gpu_ranks.py --out OUT --gpus 2

Random documents of uneven lengths and random weights of a 0.5B shape, LoRA and full; a step holds the same examples on one
GPU and on several. Every run is a job of its own, started by torchrun. Reported: the largest relative difference between
losses of the first six steps (bound: 0.5 %, for bf16 in other micro-batches; the learning rate is small, so that
trajectories stay together); milliseconds that the working stream spends between the last backward and the summed gradient,
waiting for the slower rank included; microseconds of the hosts' agreement when all ranks are there; real tokens a second
over those of one GPU times their number; and seconds from `kill -9` of the last rank in a step to the end of the job. The
exit code is 1 where losses differ or the job does not end. `--smoke` runs tiny shapes with gloo on the CPU: it checks this
script alone.
"""

import argparse
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from transformers import TrainerCallback

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))
from tests.tiny import tiny_tokenizer

from benchmarks.gpu_memory import LORA, SHAPES
from dynotune import SFTConfig, train_sft
from dynotune.parallel.group import RankGroup

COMPARED = 6
"""First steps whose losses are compared."""

STEPS, WARM = 24, 8
"""Steps of a run, and those of them that are not timed."""

LOSS_BOUND = 5e-3
ENDED_WITHIN = 60.0
CASES: dict[str, dict[str, Any]] = {"LoRA": {**LORA, "lora_dropout": 0.0}, "full": {}}


class Kill(TrainerCallback):
    """The last rank is killed when its fifth step begins, and the time is kept."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def on_step_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        if state.global_step == 4 and os.environ["RANK"] == str(int(os.environ["WORLD_SIZE"]) - 1):
            (self.folder / "killed").write_text(str(time.time()))
            os.kill(os.getpid(), signal.SIGKILL)


def work(case: str, folder: Path, smoke: bool, kill: bool) -> None:
    """One rank's part of a run; the first one leaves its figures in `folder`."""
    sums: list[Any] = []
    agreed: list[float] = []
    real_sum, real_close = RankGroup.sum_gradients, RankGroup.close

    def timed_sum(self: RankGroup, parameters: Any) -> None:
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(2)] if self.device.type == "cuda" else None
        began = time.perf_counter()
        if marks:
            marks[0].record()
        real_sum(self, parameters)
        if marks:
            marks[1].record()
        sums.append(marks or time.perf_counter() - began)

    def close(self: RankGroup) -> None:
        for n in range(250):
            began = time.perf_counter()
            self.agree(False, False, False, False)
            if n >= 50:
                agreed.append(time.perf_counter() - began)
        real_close(self)

    RankGroup.sum_gradients, RankGroup.close = timed_sum, close  # type: ignore[method-assign]
    rng = np.random.default_rng(0)
    examples, longest = (8, 60) if smoke else (32, 2048)
    lengths = rng.lognormal(6.5 if not smoke else 3.0, 0.8, STEPS * examples).astype(int).clip(16, longest)
    rows = [{"input_ids": rng.integers(5, 340, n).tolist()} for n in lengths]
    config = SFTConfig(
        model_name_or_path=str(folder.parent / "model"), random_weights=True, output_dir=str(folder), max_length=None,
        global_batch_size=examples, num_train_epochs=1, micro_batch_tokens=256 if smoke else 16384,
        packed_execution="on", save_strategy="no", logging_steps=1, disable_tqdm=True, token_cache="off", use_cpu=smoke,
        learning_rate=1e-5, overwrite_output_dir=True, **CASES[case],
    )  # fmt: skip
    ran = train_sft(
        config,
        tokenizer=tiny_tokenizer(),
        train_dataset=rows,
        callbacks=[Kill(folder)] if kill else (),
        console=Console(quiet=True),
    )
    if os.environ.get("RANK", "0") == "0":
        spent = [one if isinstance(one, float) else one[0].elapsed_time(one[1]) / 1e3 for one in sums[WARM:]]
        timed = ran.metrics[WARM:]
        seconds = sum(row["seconds_per_step"] for row in timed)
        tokens = timed[-1]["num_tokens"] - ran.metrics[WARM - 1]["num_tokens"]
        figures = {
            "losses": [row["loss"] for row in ran.metrics],
            "seconds_per_step": statistics.median(row["seconds_per_step"] for row in timed),
            "tokens_per_second": tokens / seconds,
            "sum_of_gradients_ms": 1e3 * statistics.median(spent) if spent else None,
            "agreement_us": 1e6 * statistics.median(agreed) if agreed else None,
            "peak_memory_gib": ran.summary.get("peak_memory_gib"),
            "imbalance": json.loads((folder / "plan.json").read_text())["layout"].get("ranks", {}).get("imbalance"),
        }
        (folder / "figures.json").write_text(json.dumps(figures))


def job(case: str, gpus: int, folder: Path, smoke: bool, kill: bool = False) -> tuple[int, float, dict[str, Any]]:
    """Run one job: its exit code, when it ended (seconds since 1970), and its figures."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(gpus)),
        *(str(Path(__file__).resolve()), "--work", case, "--out", str(folder)),
        *(["--smoke"] if smoke else []),
        *(["--kill"] if kill else []),
    ]
    with (folder / "said.txt").open("w") as said:
        code = subprocess.run(command, stdout=said, stderr=said, check=False, timeout=300).returncode
    ended = time.time()
    figures = folder / "figures.json"
    return code, ended, json.loads(figures.read_text()) if figures.exists() else {}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for gpu_ranks.json")
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--commit", default="")
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--work", choices=[*CASES], help=argparse.SUPPRESS)
    parser.add_argument("--kill", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.work:
        work(args.work, args.out, args.smoke, args.kill)
        return 0
    runs = args.out.resolve() / "runs"
    (runs / "model").mkdir(parents=True, exist_ok=True)
    shape = {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "tie_word_embeddings": False}
    (runs / "model" / "config.json").write_text(
        json.dumps({**shape, **SHAPES["tiny" if args.smoke else "0.5B"], "max_position_embeddings": 32768})
    )
    result: dict[str, Any] = {
        "command": " ".join(["python", *sys.argv]), "commit": args.commit, "gpus": args.gpus,
        "hardware": "cpu" if args.smoke else torch.cuda.get_device_name(),
        "versions": {p: metadata.version(p) for p in ("torch", "transformers", "peft")}
        | {"python": platform.python_version(), "nccl": None if args.smoke else torch.cuda.nccl.version()},
        "cases": {},
    }  # fmt: skip
    failed = False
    for case in CASES:
        codes_and_figures = [job(case, n, runs / f"{case}-{n}", args.smoke) for n in (1, args.gpus)]
        (code, _, one), (code_of_many, _, many) = codes_and_figures
        if code or code_of_many:
            print(f"{case}: exit codes {code}, {code_of_many}; see {runs}/*/said.txt", file=sys.stderr)
            failed = True
            continue
        pairs = zip(one["losses"][:COMPARED], many["losses"][:COMPARED], strict=True)
        apart = max(abs(a - b) / abs(a) for a, b in pairs)
        scaling = many["tokens_per_second"] / one["tokens_per_second"] / args.gpus
        result["cases"][case] = {"one": one, "many": many, "losses_apart": apart, "scaling_efficiency": scaling}
        failed |= apart > LOSS_BOUND
    dead = runs / "dead"
    code, ended, _ = job("LoRA", args.gpus, dead, args.smoke, kill=True)
    after = ended - float((dead / "killed").read_text()) if (dead / "killed").exists() else None
    result["dead_rank"] = {"exit_code": code, "seconds_to_the_end": after}
    failed |= code == 0 or after is None or after > ENDED_WITHIN
    (args.out / "gpu_ranks.json").write_text(json.dumps(result, indent=1) + "\n")
    print(
        f"{'case':<8}{'GPUs':>6}{'real tok/s':>12}{'ms/step':>9}{'sum of gradients ms':>21}{'agreement us':>14}"
        f"{'losses apart':>14}{'scaling':>9}"
    )
    for case, found in result["cases"].items():
        for n, name in ((1, "one"), (args.gpus, "many")):
            f, last = found[name], name == "many"
            spent, agreed = f["sum_of_gradients_ms"], f["agreement_us"]
            print(
                f"{case:<8}{n:>6}{f['tokens_per_second']:>12,.0f}{1e3 * f['seconds_per_step']:>9.1f}"
                f"{'-' if spent is None else format(spent, '.2f'):>21}{'-' if agreed is None else format(agreed, '.0f'):>14}"
                f"{format(found['losses_apart'], '.1e') if last else '-':>14}"
                f"{format(found['scaling_efficiency'], '.3f') if last else '-':>9}"
            )
    print(
        f"a rank killed in a step: the job ended {after if after is None else round(after, 1)} s later, exit code {code}"
    )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())

"""Sequence log-probabilities from the head on a GPU: errors against float32, host waits, sameness, time and memory.

    python benchmarks/gpu_sequences.py --out results/ --commit COMMIT

Random bf16 inputs as in `gpu_head.py`, beside whose SFT loss the same rows are timed. Sixty-four sequences in pairs; the
first label of every second sequence has the predictor of the one before it, as a shared prompt's last token has. Times are
medians of CUDA events over forward and backward. `--cpu` runs tiny shapes without timing, to test the script itself.
"""

import argparse
import json
import platform
import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from gpu_head import FLOOR, error, measure, small_chunks
from head_problem import Problem
from torch import Tensor

from dynotune.config.keys.objective import SFTObjectiveConfig
from dynotune.model.head import SequenceScores, sequence_scores
from dynotune.model.head.kernel import row_function
from dynotune.model.head.logit_map import LogitMap
from dynotune.objectives.sft import SFTObjective

SEQUENCES = 64


class Sequences(Problem):
    """The labelled rows of a `Problem` as sequences of equal length, with repeated predictors."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        predictors_N = self.batch.predictors_N.clone()
        n = len(predictors_N)
        self.sequences_N = torch.arange(n, device=predictors_N.device) * SEQUENCES // n
        firsts = torch.tensor([-(-q * n // SEQUENCES) for q in range(SEQUENCES)], device=predictors_N.device)
        predictors_N[firsts[1::2]] = predictors_N[firsts[0::2]]
        self.predictors_N, self.targets_N = predictors_N, self.batch.targets_N

    def scores(self, logits: LogitMap, **asked: bool) -> SequenceScores:
        return sequence_scores(
            self.head(logits), self.hidden_TD, self.predictors_N, self.targets_N, self.sequences_N, SEQUENCES, **asked
        )

    def by_sequence(self, logits: LogitMap, **asked: bool) -> tuple[Tensor, ...]:
        logps_Q = self.scores(logits, **asked).logps_Q
        return logps_Q.detach(), *torch.autograd.grad(dpo(logps_Q), self.wanted)

    def plainly(self, logits: LogitMap, precision: torch.dtype | None = None) -> tuple[Tensor, ...]:
        """Full logits and autograd; in `precision` with gradients of its own leaves, or in the tensors' own."""
        leaves = [
            tensor.detach().to(precision or tensor.dtype).requires_grad_()
            for tensor in (self.hidden_TD, self.layer.weight)
        ]
        x_NV = logits(F.linear(leaves[0][self.predictors_N], leaves[1]))
        logps_N = x_NV.float().log_softmax(-1).gather(1, self.targets_N[:, None])[:, 0]
        logps_Q = logps_N.new_zeros(SEQUENCES).index_add(0, self.sequences_N, logps_N)
        return logps_Q.detach(), *torch.autograd.grad(dpo(logps_Q), leaves[: len(self.wanted)])


def dpo(logps_Q: Tensor) -> Tensor:
    return -F.logsigmoid(0.01 * (logps_Q[0::2] - logps_Q[1::2])).mean()


def check_errors(device: torch.device, small: bool) -> list[dict[str, Any]]:
    """P2: at most 1.5 times the plain path's error; and bitwise the same a second time."""
    rows = []
    tokens, width, vocabulary = (256, 32, 641) if small else (3000, 1024, 152_064)
    for precision in (torch.bfloat16, torch.float32):
        for trained in (False, True):
            for logits in (LogitMap(), LogitMap(cap=30.0)):
                problem = Sequences(device, tokens, width, vocabulary, trained=trained, precision=precision)
                with small_chunks(700, vocabulary, precision.itemsize):
                    ours, again = problem.by_sequence(logits), problem.by_sequence(logits)
                right = problem.plainly(logits, torch.float32)
                mine, plain = error(ours, right), error(problem.plainly(logits), right)
                same = all(torch.equal(a, b) for a, b in zip(ours, again, strict=True))
                ok = same and all(m <= max(1.5 * p, FLOOR) for m, p in zip(mine, plain, strict=True))
                rows.append(
                    {"precision": str(precision), "trained": trained, "logits": str(logits), "error": mine,
                     "plain_error": plain, "same twice": same, "ok": ok}
                )  # fmt: skip
    return rows


def check_waits(device: torch.device) -> dict[str, Any]:
    """No operation of a call makes the host wait; negative control: one that does is noticed."""
    waits: dict[str, Any] = {}
    for trained in (False, True):
        problem = Sequences(device, 512, 256, 8000, trained=trained)
        call = partial(problem.by_sequence, LogitMap(cap=30.0), mean_logits=True, aligned_logps=True)
        call()  # compiles
        torch.cuda.set_sync_debug_mode("error")
        try:
            call()
            waits[f"trained={trained}"] = "none"
        except RuntimeError as raised:
            waits[f"trained={trained}"] = str(raised)
        try:
            problem.hidden_TD.sum().item()
            waits["control"] = "missed"
        except RuntimeError:
            waits["control"] = "seen"
        torch.cuda.set_sync_debug_mode("default")
    waits["ok"] = waits["control"] == "seen" and all(waits[f"trained={t}"] == "none" for t in (False, True))
    return waits


def check_times(device: torch.device) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    sft = SFTObjective(SFTObjectiveConfig())
    for trained in (False, True):
        problem = Sequences(device, 16_384, 3584, 152_064, trained=trained)
        calls: dict[str, Any] = {
            "SFT's loss": partial(problem.ours, LogitMap(), sft),
            "sequences": partial(problem.by_sequence, LogitMap()),
            "sequences, mean logits": partial(problem.by_sequence, LogitMap(), mean_logits=True),
            "sequences, WPO": partial(problem.by_sequence, LogitMap(), aligned_logps=True),
        }
        if not trained:
            calls["sequences, no gradient"] = torch.no_grad()(partial(problem.scores, LogitMap()))
        for method, call in calls.items():
            rows.append({"trained": trained, "method": method, **measure(call, repeats=5)})
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for gpu_sequences.json")
    parser.add_argument("--commit", default="", help="commit of the tree, where it is not a git checkout")
    parser.add_argument("--cpu", action="store_true", help="tiny shapes, no times: tests the script")
    args = parser.parse_args()
    device = torch.device("cpu" if args.cpu else "cuda", None if args.cpu else 0)
    torch.backends.cuda.matmul.allow_tf32 = False
    function, reason = row_function(device)
    result: dict[str, Any] = {
        "command": " ".join(["python", *sys.argv]),
        "commit": args.commit,
        "hardware": "CPU" if args.cpu else torch.cuda.get_device_name(),
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
        "row function": getattr(function, "__name__", str(function)),
        "row function's reason": reason,
        "errors": check_errors(device, small=args.cpu),
    }
    if not args.cpu:
        result["waits"], result["times"] = check_waits(device), check_times(device)
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "gpu_sequences.json").write_text(json.dumps(result, indent=1) + "\n")
    for row in result["errors"]:
        errors = " ".join(f"{m:.1e}/{p:.1e}" for m, p in zip(row["error"], row["plain_error"], strict=True))
        kind = f"{row['precision'][6:]:9s} trained={row['trained']!s:5s} {row['logits']:28s}"
        print(f"{'ok  ' if row['ok'] else 'FAIL'} {kind} same twice: {row['same twice']}, ours/plain: {errors}")
    print(f"host waits: {result.get('waits', 'not looked at')}")
    for row in result.get("times", []):
        print(f"trained={row['trained']!s:5s} {row['method']:26s} {row['ms']:8.2f} ms  {row['peak_MiB']:8.0f} MiB")
    ok = all(check["ok"] for check in [*result["errors"], *([result["waits"]] if "waits" in result else [])])
    print("gpu_sequences: every check holds" if ok and reason is None else "gpu_sequences: FAILED")
    sys.exit(not (ok and reason is None))


if __name__ == "__main__":
    main()

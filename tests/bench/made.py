"""Results that no bench has measured, of every kind, for whoever shows or keeps them. Figures are drawn by a seed."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dynotune.measure.words import DEFINITIONS
from dynotune.results.result import (
    Arm,
    Block,
    Check,
    Clocks,
    Comparison,
    Engaged,
    Expectation,
    Interval,
    Memory,
    MemoryVerdict,
    Noise,
    Parity,
    Result,
    Sample,
    Tier,
    Verdict,
    WarmUp,
    Withdrawn,
)

MACHINE = {
    "device": "NVIDIA H200",
    "capability": "9.0",
    "driver": "580.95.05",
    "cuda": "13.0",
    "torch": "2.11.0",
    "triton": "3.6.0",
    "python": "3.12.3",
    "dynotune": "0.1.0",
    "packages": {"transformers": "5.17.0", "peft": "0.21.0"},
}
GIB = 1 << 30


def blocks(
    name: str, speed: float, pairs: int = 8, noise: float = 0.004, seed: int = 0, fill: float = 0.93
) -> tuple[Block, ...]:
    """Of one arm at `speed` real tokens a second; the documents of a pair are the same for every arm."""
    documents = np.random.default_rng(99)
    own = np.random.default_rng([seed, sum(map(ord, name))])
    found = []
    for pair in range(pairs):
        tokens = int(80_000 * (1 + 0.1 * documents.standard_normal()))
        seconds = tokens / speed * math.exp(noise * own.standard_normal())
        found.append(
            Block(
                arm=name,
                pair=pair,
                first_step=5 * pair,
                steps=5,
                examples=80,
                documents=80,
                real_tokens=tokens,
                label_tokens=tokens // 2,
                processed_tokens=int(tokens / fill),
                seconds=seconds,
                step_seconds=tuple(seconds / 5 for _ in range(5)),
                device_seconds=seconds * 0.995,
                loss=1.2 - 0.01 * pair,
                clocks=Clocks(samples=40, sm_mhz=1755.0, power_watts=640.0, celsius=61.0, utilisation_mean=0.97),
            )
        )
    return tuple(found)


def arm(name: str, speed: float, memory: float = 41.2, engaged: Sequence[Engaged] = (), **other: Any) -> Arm:
    """memory: GiB."""
    return Arm(
        name=name,
        **{
            "settings": {},
            "config": {"learning_rate": 1e-4},
            "examples_a_step": 16,
            "steps_an_epoch": 500,
            "blocks": blocks(name, speed),
            "warm_up": WarmUp(
                steps=11, seconds=9.5, first_step_seconds=6.1, set_up_seconds=31.0, events=("2 compilations at step 1",)
            ),
            "memory": Memory(
                tokens=16_384,
                allocated=int(memory * GIB),
                reserved=int((memory + 2) * GIB),
                device=int((memory + 3) * GIB),
            ),
            "engaged": tuple(engaged),
            "gpu_seconds": 120.0,
            "mfu": 0.412,
            "final_loss": 1.13,
            **other,
        },
    )


def same(arm: str, against: str, gradient: float = 4e-7) -> Parity:
    checks = (
        Check(gate="P1", quantity="loss of each token", observed=8e-7, bound=1e-5, ok=True),
        Check(gate="P1", quantity="gradient", observed=gradient, bound=1e-4, ok=True),
        Check(gate="P1", quantity="label tokens", observed=0, bound=0, ok=True),
    )
    return Parity(arm=arm, against=against, kind="exact", state="same", checks=checks)


def compared(
    arm: str, against: str, label: str, role: Any, ratio: float, half: float = 0.004, **other: Any
) -> Comparison:
    faster = Verdict.FASTER if ratio - half > 1.005 else Verdict.SLOWER if ratio + half < 0.995 else Verdict.SAME
    draws = np.random.default_rng(7).standard_normal(8)
    return Comparison(
        arm=arm,
        against=against,
        label=label,
        role=role,
        **{
            "ratio": Interval(low=ratio - half, estimate=ratio, high=ratio + half),
            "log_ratios": tuple(math.log(ratio) + half * (draws - draws.mean())),
            "median": ratio,
            "sign_flip_p": 0.0078,
            "verdict": faster,
            **other,
        },
    )


def result(kind: Any, **parts: Any) -> Result:
    return Result(
        kind=kind,
        **{
            "definitions": DEFINITIONS,
            "name": f"2026-11-22-093000-{kind}",
            "date": "2026-11-22T09:30:00+00:00",
            "command": f"dynotune bench --config a.yaml --{kind} b.yaml",
            "commit": "e1d2af1",
            "operating_point": "Qwen2.5-7B LoRA r32 · 1x NVIDIA H200 · chats.jsonl, lengths up to 4,096 · 16 examples a step"
            " · bf16 · seed 17",
            "machine": MACHINE,
            "work": "sft of Qwen2ForCausalLM under LORA",
            "model": {"name": "Qwen/Qwen2.5-7B", "parameters": 7_615_616_512},
            "tier": Tier.SWITCH,
            "seed": 17,
            "steps_a_block": 5,
            "sample": Sample(
                examples=640,
                real_tokens=640_000,
                examples_of_plan=8_000,
                real_tokens_of_plan=8_100_000,
                lengths={"5 %": (80, 78), "50 %": (700, 705), "95 %": (2_900, 3_000), "max": (4_096, 4_096)},
                sentence="640 of 8,000 examples were measured, 7.9 % of the tokens; lengths as in the plan within 4 %.",
            ),
            "noise": Noise(log_ratios=(0.001, -0.002), floor=0.003),
            "sentence": "",
            "gpu_seconds": 240.0,
            **parts,
        },
    )


PACKED = Engaged(name="packed_execution", state="engaged", seen=26, expected=26, evidence="26 micro-batches")


def ab(**parts: Any) -> Result:
    """Two configurations, one 7 % faster with the same updates."""
    return result(
        "ab",
        **{
            "arms": (
                arm("a.yaml", 14_000, engaged=(PACKED,)),
                arm("b.yaml", 15_000, 33.4, engaged=(PACKED,), settings={"speedups": {"fused_lora": "auto"}}),
            ),
            "comparisons": (
                compared(
                    "b.yaml",
                    "a.yaml",
                    "b.yaml",
                    "whole",
                    1.07,
                    0.01,
                    memory=MemoryVerdict.LESS,
                    memory_ratio=0.81,
                    pays_back_after_steps=37,
                ),
            ),
            "parity": (same("b.yaml", "a.yaml"),),
            "differences": ("b.yaml lays several documents side by side, a.yaml one at a time.",),
            "expectations": (
                Expectation(text="speed>=1.05", observed="1.07x [1.06, 1.08]", met=True),
                Expectation(text="peak<=0.8", observed="0.81x", met=False),
            ),
            **parts,
        },
    )


CHANGES = (
    ("packed_execution", 2.28, 2.19, -3.1),
    ("fused_lora", 1.062, 1.049, -9.4),
    ("flash_attention", 1.002, 1.001, 0.0),
)


def attribute(changes: Sequence[tuple[str, float, float, float]] = CHANGES, **parts: Any) -> Result:
    """Each change alone and added last."""
    every = [arm("base", 7_000), arm("all", 17_000, 29.0)]
    comparisons, parity = [], []
    for label, alone, last, memory in changes:
        seen = Engaged(name=label, state="engaged", seen=64, expected=64)
        every += [arm(f"{label} alone", 7_000 * alone, 41.2 + memory, [seen]), arm(f"all but {label}", 17_000 / last)]
        comparisons += [
            compared(f"{label} alone", "base", label, "alone", alone),
            compared("all", f"all but {label}", label, "last", last),
        ]
        parity.append(same(f"{label} alone", "base"))
    comparisons.append(compared("all", "base", "all", "whole", 2.43, 0.04, pays_back_after_steps=37))
    return result(
        "attribute",
        **{
            "arms": tuple(every),
            "comparisons": tuple(comparisons),
            "parity": (*parity, same("all", "base")),
            **parts,
        },
    )


def ladder(**parts: Any) -> Result:
    """Each change added in order."""
    seen: list[Engaged] = []
    every, comparisons, parity, speed = [arm("plain", 7_000)], [], [], 7_000.0
    for label, step, _, memory in CHANGES:
        speed *= step
        seen.append(Engaged(name=label, state="engaged", seen=64, expected=64))
        every.append(arm(f"+ {label}", speed, 41.2 + memory, seen))
        comparisons.append(compared(every[-1].name, every[-2].name, label, "step", step))
        parity.append(same(every[-1].name, every[-2].name))
    comparisons.append(compared(every[-1].name, "plain", "all", "whole", speed / 7_000, 0.03))
    parity.append(same(every[-1].name, "plain"))
    return result(
        "ladder", **{"arms": tuple(every), "comparisons": tuple(comparisons), "parity": tuple(parity), **parts}
    )


def attribute_on_a_ladder(**parts: Any) -> Result:
    """Both in one bench, with arms in common."""
    one, other = attribute(), ladder()
    steps = tuple(each for each in other.comparisons if each.role == "step")
    return attribute(
        arms=(*other.arms, *one.arms),
        comparisons=(*steps, *one.comparisons),
        parity=(*other.parity, *one.parity),
        **parts,
    )


def sweep(**parts: Any) -> Result:
    """Batch sizes; the largest runs out of memory."""
    names = [f"per_device_train_batch_size={size}" for size in (1, 4, 16, 64)]
    every = [
        arm(name, speed, memory)
        for name, speed, memory in zip(names, (4_100, 9_800, 13_900), (22, 30, 61), strict=False)
    ]
    every.append(out_of_memory(names[3]))
    comparisons = tuple(
        compared(one.name, names[0], one.name, "whole", speed / 4_100)
        for one, speed in zip(every[1:3], (9_800, 13_900), strict=True)
    )
    parity = tuple(
        Parity(arm=one.name, against=names[0], kind="behavioural", state="behavioural") for one in every[1:3]
    )
    return result("sweep", **{"arms": tuple(every), "comparisons": comparisons, "parity": parity, **parts})


def out_of_memory(name: str = "b.yaml") -> Arm:
    return Arm(name=name, settings={"per_device_train_batch_size": 64}, failed="out of memory at 65,536 tokens")


def not_comparable(**parts: Any) -> Result:
    """The arms count other labels. A ratio stands in the file all the same, and must not be shown."""
    differs = Parity(
        arm="b.yaml",
        against="a.yaml",
        kind="exact",
        state="differs",
        checks=(Check(gate="P1", quantity="label tokens", observed=812, bound=790, ok=False),),
        first_difference="label tokens: 812 against 790",
    )
    one = compared("b.yaml", "a.yaml", "b.yaml", "whole", 1.77, 0.011).model_copy(
        update={"verdict": Verdict.NOT_COMPARABLE, "why": "label tokens: 812 against 790"}
    )
    return ab(**{"comparisons": (one,), "parity": (differs,), "expectations": (), **parts})


def suspect(**parts: Any) -> Result:
    one = compared("b.yaml", "a.yaml", "b.yaml", "whole", 1.9).model_copy(
        update={
            "verdict": Verdict.SUSPECT,
            "why": "1.90x is above 1.25x, the most that its share of the step allows",
            "ceiling": 1.25,
        }
    )
    return ab(**{"comparisons": (one,), **parts})


def withdrawn(**parts: Any) -> Result:
    mark = Withdrawn(date="2026-11-23", why="its tokens counted padding", corrected_by="2026-11-23-101500-ab")
    return ab(**{"withdrawn": mark, **parts})


EVERY = {
    "ab": ab,
    "attribute": attribute,
    "ladder": ladder,
    "attribute on a ladder": attribute_on_a_ladder,
    "sweep": sweep,
    "not_comparable": not_comparable,
    "suspect": suspect,
    "withdrawn": withdrawn,
}
"""By name, what makes one."""

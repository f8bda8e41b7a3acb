"""What people believe of a setting, and the bench that asks whether it is so: the cases of `benchmarks/case_studies.py`.

Seconds are those of a whole case on one H200, loading included, with room: by what was measured there so far (loading a 7B
shape and tokenising 45 s; of 16 conversations 0.27 s a packed step, 2.7 s one of the plain path; 5 s before an arm's first
step, 2.8 s to change to it again; the parity gate 80 s, peak memory 35 s an arm). Cases stand in the order of what they are
worth.
"""

from dataclasses import dataclass
from pathlib import Path

SAME = "SAME"
"""In words: a copy of the configuration, under another name."""


@dataclass(frozen=True)
class Case:
    """One bench."""

    title: str
    asks: str
    """What is said, and how it is asked here: a paragraph of Markdown."""

    words: tuple[str, ...]
    """Behind `dynotune bench --config FILE`."""

    seconds: int
    config: str = "seven-b-lora"
    """In `benchmarks/configs`."""

    layers: int | None = None
    """Of the model, all by default."""

    withdrawn: str = ""
    """In `benchmarks/results`, what this case or one like it left and was withdrawn: its page keeps the reason."""

    beside: str = ""
    """The case that measures the other half of the same changes: its gains stand beside these."""

    older: str = ""
    """What its results do not have, as they are older: a paragraph that goes when it is measured again."""

    earlier: str = ""
    """In `benchmarks/results`, what the same bench left before it was a case: shown while there is nothing newer."""


THIRTY_TWO = ("--per_device_train_batch_size", "32")
SIX = ("--pairs", "6", "--most_pairs", "6")
SHORT = ("--no_memory", "--parity", "off")
FIXED = ("--micro_batch_tokens", "16384", "--activation_memory", "none")
"""The same micro-batches in every arm, and no trial of memory for each of them: on an H200 that took 2 to 3 s an arm and
gave all cached memory back, so that 500 to 900 segments were allocated anew and warming up took 17 to 24 steps, not 11."""

STOCK = tuple(
    word
    for name in ("labelled_rows_head", "rms_norm_kernel", "rotary_kernel", "gated_activation_kernel")
    for word in (f"--speedups.{name}", "off")
)
"""Our own kernels out, so that Liger's stand against PyTorch's operations, as in the trainers in which this is said."""

LIGER = ("liger_rms_norm", "liger_rope", "liger_swiglu", "liger_cross_entropy")
WITHOUT_LIGER = tuple(word for name in LIGER for word in (f"--speedups.{name}", "off"))
"""Where ours are out, Liger's come in by themselves: the first run of the case had them in both arms."""

BY_THEMSELVES = (
    "packed_execution", "attention_fa3", "gated_activation_kernel", "rms_norm_kernel", "fused_add_rms_norm", "rotary_kernel",
    "fused_lora", "lora_in_activation", "labelled_rows_head", "fused_optimizer", "prefetch",
)  # fmt: skip
"""What a LoRA run of a 7B shape takes on an H200."""

PLAIN_PATH = tuple(word for name in BY_THEMSELVES for word in (f"--speedups.{name}", "off"))
ALL_TOGETHER = tuple(word for name in BY_THEMSELVES for word in ("--set", f"speedups.{name}=auto"))

WITH_LIGER = tuple(word for name in LIGER for word in ("--set", f"speedups.{name}=on"))

CASES: dict[str, Case] = {
    "floor": Case(
        "A configuration against itself",
        "How far apart are two arms that are the same? No difference below this is worth a word, on this card and in this"
        " work.",
        ("--vs", SAME, *SHORT, "--pairs", "8", "--most_pairs", "8"),
        150,
        earlier="h200_bench_aa.json",
    ),
    "together": Case(
        "All speed-ups together, the updates compared and the memory measured",
        "The ladders show what each speed-up adds and check no updates, which takes its time for each rung. Here one bench"
        " has the plain path and everything, of the same shape with 4 of its 28 layers: loss and gradient in float32, one"
        " update and the working precision's errors are compared first, and each arm's peak is taken in its own process.",
        (*THIRTY_TWO, *PLAIN_PATH, *WITHOUT_LIGER, *ALL_TOGETHER, "--steps", "2", "--pairs", "6", "--most_pairs", "8"),
        500,  # measured: 479, of which the gate 295
        layers=4,
    ),
    "ladder": Case(
        "Each speed-up on top of those before it",
        "From the plain path, one document at a time in transformers' own operations, each speed-up that a LoRA run of a 7B"
        " shape takes by itself is added in turn. Steps are of 32 conversations: with 8 the last rungs took 0.15 s a"
        " step on an H200, and a noise floor of 22 % hid most of them.",
        (
            *THIRTY_TWO, *FIXED, "--ladder", *SHORT, "--steps", "1", "--pairs", "6",
            "--most_pairs", "12", "--budget", "490",
        ),
        530,  # measured: 434
    ),
    "ladder_dpo": Case(
        "Each speed-up on top of those before it, with preferences",
        "The same ladder of DPO: 8 pairs a step. The reference's log-probabilities are computed before the blocks that meet"
        " their pairs, and are in no step. The plain path computes both answers of each pair by themselves.",
        (
            "--method", "dpo", "--per_device_train_batch_size", "8", *FIXED, "--ladder", *SHORT, "--steps", "2", "--pairs",
            "6", "--most_pairs", "12", "--budget", "462",
        ),
        530,
        "seven-b-dpo",
    ),
    "attribute_alone": Case(
        "Each speed-up alone",
        "A gain that is large alone may be nothing beside the others. Each speed-up of a LoRA run of a 7B shape, all 28"
        " layers, is added to packed execution and to nothing else than what it needs: all but two need it, and what it does"
        " itself is the first step of [the ladder](ladder.md). (On the plain path three rounds fitted into ten minutes, of"
        " 16 conversations a step.) Steps are of 32, as there.",
        (
            *THIRTY_TWO, *FIXED, "--attribute_only", "alone", "--on_top_of", "packed_execution", *SHORT, "--steps", "1",
            "--pairs", "6", "--most_pairs", "16", "--budget", "470",
        ),
        520,
        withdrawn="case_attribute_h200.json",
    ),
    "attribute_last": Case(
        "Each speed-up added last",
        "The other half: what each adds where all others are there, which is what leaving it out costs.",
        (
            *THIRTY_TWO, *FIXED, "--attribute_only", "last", *SHORT, "--steps", "1", "--pairs", "6", "--most_pairs", "16",
            "--budget", "470",
        ),
        520,
        beside="attribute_alone",
    ),
    "liger": Case(
        '"Liger makes LoRA slower"',
        "It is said after a look at the first minutes, in which kernels are compiled, or of a run in which they did not"
        " stand at all. Here they are traced in a step of this bench, what comes before level steps is not counted, and the"
        " baseline has PyTorch's operations in their places. Our own kernels are out in both arms.",
        (*STOCK, *WITHOUT_LIGER, *WITH_LIGER, "--no_memory", *SIX),
        180,
    ),
    "batch": Case(
        '"A smaller batch trains a tiny model faster"',
        "Smaller batches make the progress bar show more steps a second, and the run is expected to end sooner. What it"
        " gets done is real tokens a second. Batches of other sizes make other updates, so every arm is behavioural.",
        (
            "--sweep", "per_device_train_batch_size=2,8,32", "--tier", "resident", "--test_split_size", "0.1", "--budget",
            "400", *SIX,
        ),
        300,
        "23m-full",
    ),
    "packing": Case(
        '"Packing must collapse steps"',
        "`packing: true` fills rows of a fixed length, so an epoch of short examples has several times fewer updates, and"
        " learning rates and schedules no longer fit. Packed *execution* lays the examples of one step side by side and"
        " leaves the steps alone. The ladder goes from one document at a time to packed execution, and from there to"
        " `packing: true`.",
        (
            "--speedups.packed_execution", "off", "--ladder", "--set", "speedups.packed_execution=auto",
            "--set", "packing=true", "--micro_batch_tokens", "4096", "--tier", "resident", *SIX,
        ),
        360,  # measured
        layers=8,
    ),
}  # fmt: skip


def kept_of(name: str, folder: Path) -> list[Path]:
    """Results of a case in a folder. Names of cases may begin alike: those of `ladder_dpo` are none of `ladder`'s."""
    longer = tuple(f"case_{other}_" for other in CASES if other.startswith(f"{name}_"))
    return sorted(path for path in folder.glob(f"case_{name}_*.json") if not path.name.startswith(longer))

"""OPT004: accumulation over micro-batches so small that the GPU waits for the host."""

from collections.abc import Iterator
from typing import Any

from dynotune.audit.facts.asked import adapters, max_length, micro_batch, number, on_gpu
from dynotune.audit.facts.cards import bound_by_reading, named_card
from dynotune.audit.facts.job import Job, Trainer
from dynotune.audit.facts.lengths import longest_row, usual_row
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.row_length import row_length
from dynotune.audit.facts.sized import sized
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.models import Known
from dynotune.audit.rule import Example, Group, Page, Rule, Subject
from dynotune.audit.rules.mem001_checkpointing_to_spare import estimate

RATE = 350e12
"""FLOPs a second that a data-centre GPU reaches in training."""

LAUNCH = 5e-6
"""Seconds that the host takes to launch a kernel, at best."""

LAUNCHES = 90
"""Kernels a layer and micro-batch, forwards and backwards, at least: 2,524 of 28 layers with fused adapters."""

UNDER_PEFT = 240
"""The same with adapters of PEFT under autocast, as TRL, transformers and LLaMA-Factory train them: 6,974 of 28 layers."""

SMALLEST_CARD = 16 << 30
"""Bytes that the larger micro-batch must fit into where the card is not known."""

_SFT = (
    "model_name_or_path: HuggingFaceTB/SmolLM2-135M\ndataset_name: data.jsonl\nmax_length: 512\nuse_peft: false\n"
    "gradient_checkpointing: false\n"
)


def check(job: Job, project: Project) -> Iterator[Said]:
    rows, accumulation = micro_batch(job), _accumulation(job)
    length = max_length(job) or longest_row(project) or _context(job) or row_length(job, project) or _alone(project)
    model, lora = sized(job), adapters(job)
    if rows is None or length is None or accumulation is None or accumulation < 2 or not on_gpu(job):
        return
    if model is None or model.layers is None or job.trainer is Trainer.DYNOTUNE or job.get("packing") is True:
        return
    length = min(length, _usual(job, rows, project) or length)
    card = named_card(job, project)
    memory = int(card * 2**30) if card else SMALLEST_CARD
    factor = _fits(model, rows * length, lora, int(accumulation), project, memory)
    if factor < 2:
        return
    by_peft = bool(lora) and job.trainer in (Trainer.TRL, Trainer.TRANSFORMERS, Trainer.LLAMA_FACTORY)
    worked, launched = _seconds(model, rows * length, lora, UNDER_PEFT if by_peft else LAUNCHES)
    if worked <= launched / 2 and number(job, "gradient_accumulation_steps"):
        said = (
            f"Micro-batches of {rows} x up to {length:,} tokens give the GPU about {worked * 1e3:.0f} ms of work and the"
            f" host at least {launched * 1e3:.0f} ms of launches ({model.billions:g}B parameters), {accumulation:g} times"
            " a step."
        )
        facts = {"tokens": rows * length, "work ms": round(worked * 1e3, 1), "launches ms": round(launched * 1e3, 1)}
        yield _finding(job, said, facts, factor)
        return
    bound = bound_by_reading(job, project)
    if bound is not None and rows * length < bound[1]:
        said = (
            f"Micro-batches of {rows} x about {length:,} tokens are too small for the card: below {bound[1]} tokens a pass"
            f" an {bound[0]} takes longer to read the weights"
            f" ({model.billions:g}B parameters) than to multiply by them, and it does so for each of the micro-batches that"
            " a step accumulates."
        )
        yield _finding(job, said, {"tokens": rows * length, "card": bound[0], "bound below": bound[1]}, factor)


WORKED_OUT = 8
"""Micro-batches of a step whose number is worked out of a total, by something that cannot be told: so many at least are
few."""


def _accumulation(job: Job) -> float | None:
    """Micro-batches of a step."""
    held = job.setting("gradient_accumulation_steps")
    return WORKED_OUT if held is not None and not held.is_known else number(job, "gradient_accumulation_steps")


def _context(job: Job) -> int | None:
    """Of a model of one's own, in a loop of one's own: windows of its length."""
    length = number(job, "own_model_context")
    return int(length) if length and length >= 1 else None


def _alone(project: Project) -> int | None:
    """Tokens of a row in the mean, where nothing limits rows; None: something may join rows."""
    texts = [*project.documents.values(), *(one.source for one in project.scripts)]
    return usual_row(project) if not any("pack" in text.lower() for text in texts) else None


def _usual(job: Job, rows: int, project: Project) -> int | None:
    """Tokens of a padded row, about: of the data that was read, or that documents tell of."""
    data = project.data_of(job)
    if data is not None and data.lengths:
        return round(sum(data.lengths) / len(data.lengths) * 2)
    told = usual_row(project)
    return told * (2 if rows > 1 else 1) if told else None


def _finding(job: Job, said: str, facts: dict[str, Any], factor: int) -> Finding:
    rows, accumulation = micro_batch(job) or 1, int(number(job, "gradient_accumulation_steps") or 0)
    new = accumulation // factor
    changes = [job.set("per_device_train_batch_size", rows * factor)]
    told = f"Set `{job.called('per_device_train_batch_size')}: {rows * factor}` and"
    if accumulation:
        changes.append(job.set("gradient_accumulation_steps", new))
        told += f" `{job.called('gradient_accumulation_steps')}: {new}`: the same {rows * accumulation} rows a step."
    else:
        told += f" accumulate {factor} times less: the same rows a step."
    return Finding(
        said,
        place=job.place("per_device_train_batch_size"),
        evidence=Evidence(Level.RESOLVED, facts),
        stake=Stake(
            AtStake.TIME, 0.2, 1 - 1 / factor, "2,835 against 15,470 tokens/s at 258 and 2,064 tokens: the baseline"
        ),
        remedy=Remedy(
            Risk.NUMERIC,
            told,
            tuple(changes),
            breaks="Memory: try the longest rows first.",
            accuracy="Sums round otherwise; the rows of a step stay the same.",
            measure="dynotune bench --config sft.yaml",
        ),
        also=(job.place("gradient_accumulation_steps"),),
    )


def _seconds(model: Known, tokens: int, lora: bool | None, launches: int) -> tuple[float, float]:
    """Of work and of launches, for a micro-batch. launches: kernels of a layer."""
    assert model.billions
    assert model.layers
    return tokens * model.billions * 1e9 * (4 if lora else 6) / RATE, model.layers * launches * LAUNCH


def _fits(model: Known, tokens: int, lora: bool | None, accumulation: int, project: Project, memory: int) -> int:
    """The largest divisor of the accumulation by which the micro-batch can grow. memory: bytes of the named card."""
    gpus = project.environment.gpus if project.environment else ()
    memory = min((int(gpu["memory"]) for gpu in gpus), default=memory)
    fitting = [
        factor
        for factor in range(1, accumulation + 1)
        if accumulation % factor == 0 and estimate(model, tokens * factor, lora) < 0.6 * memory
    ]
    return max(fitting, default=1)


RULE = Rule(
    code="OPT004",
    name="micro-batches-too-small",
    summary="Micro-batches are so small that the GPU waits for the host.",
    group=Group.PERFORMANCE,
    subject=Subject.JOB,
    check=check,
    page=Page(
        what="A micro-batch launches thousands of kernels, whatever its size. Where each has little to do, launching takes"
        " longer than computing.",
        why="Accumulating many tiny micro-batches pays that price many times. Larger micro-batches with less"
        " accumulation hold"
        " the same rows a step, so the update is the same.",
        detected="E1: FLOPs of the micro-batch from the model's size, against launches from its layers; said where"
        " work is less"
        " than half of launching, or where a pass has fewer tokens than the one card that the project names needs to"
        " multiply"
        " longer than it reads weights, and a larger micro-batch fits by an estimate on the high side. The model's size by"
        " its name, or by the arguments of a class of one's own",
        proven="`dynotune profile -- python train.py`: the GPU's idle time.",
        deliberate=("Very mixed lengths, of which larger batches would be mostly padding.",),
        sources=(
            "H200, 7B LoRA: 27.8 ms of graph against 89 eager at 258 tokens; 2,524 to 6,974 launches a micro-batch",
            "H200, 23M parameters: 313,552 tokens/s at 8 x 1024, 625,480 at 32 x 1024",
        ),
    ),
    bad=Example(
        {"sft.yaml": f"{_SFT}per_device_train_batch_size: 1\ngradient_accumulation_steps: 32\n"}, says="launches"
    ),
    good=Example({"sft.yaml": f"{_SFT}per_device_train_batch_size: 32\ngradient_accumulation_steps: 1\n"}),
)

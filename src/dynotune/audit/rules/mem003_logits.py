"""MEM003: the logits of all tokens stand in memory at once, or a loss of one's own copies them to float32."""

import re
from collections.abc import Iterator

from dynotune.audit.facts.asked import at_least, given, max_length, micro_batch, number, on_gpu
from dynotune.audit.facts.cards import named_card
from dynotune.audit.facts.job import Fate, Job, Method, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Call, Script
from dynotune.audit.facts.sized import sized
from dynotune.audit.facts.steps import helpers, loops, per_step, text_at
from dynotune.audit.facts.together import together
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.models import known
from dynotune.audit.rule import Example, Group, Page, Rule, Subject
from dynotune.audit.shapes.last_of_all_logits import last_of_all_logits
from dynotune.audit.shapes.logits_of_an_evaluation import logits_of_an_evaluation

BYTES = 10
"""A logit: bfloat16 from the head, float32 for the loss, float32 gradient."""

GIB = 16.0
"""From here on it is said where the card is not known: a fifth of 80 GiB."""

SHARE = 0.4
"""Of the card, where it is known and rows fill the limit: below, the batch is decided by something else."""

SHARE_OF_A_BOUND = 0.45
"""The same where rows are padded to the longest of a batch, and are as long as the limit in the bound alone."""

FUSED = ("liger_fused_linear_cross_entropy", "cut_cross_entropy", "chunked_cross_entropy", "liger_cross_entropy")

_LF = (
    "model_name_or_path: Qwen/Qwen2.5-7B\nstage: sft\ndo_train: true\nfinetuning_type: lora\ndataset: mine\ntemplate: qwen\n"
    "output_dir: saves/mine\ncutoff_len: 4096\nper_device_train_batch_size: 4\n"
)


def check(project: Project, _: Project) -> Iterator[Said]:
    for job in project.jobs:
        yield from _of_a_job(job, project)
        yield from logits_of_an_evaluation(job, project)
    for script in project.scripts:
        yield from _copied(script, project)
        yield from last_of_all_logits(script, project)


def _of_a_job(job: Job, project: Project) -> Iterator[Said]:
    if not _materialises(job, project) or not on_gpu(job):
        return
    model = known(job.get("model_name_or_path"))
    rows, length = micro_batch(job), max_length(job)
    if model is None or rows is None or length is None or _batch_by_another_name(job):
        return
    data = project.data_of(job)
    filled = job.get("packing") is True
    if data is not None and data.lengths and not data.sampled and not filled:
        length, filled = min(length, max(data.lengths)), True
    tokens = rows * length * (2 if job.method is Method.DPO else 1)
    gib = tokens * model.vocabulary * BYTES / 2**30
    gpus = project.environment.gpus if project.environment else ()
    card = min((int(gpu["memory"]) / 2**30 for gpu in gpus), default=None) or named_card(job, project)
    if card is None and job.trainer is Trainer.TRANSFORMERS and job.method is None:
        return
    if gib < ((SHARE if filled else SHARE_OF_A_BOUND) * card if card else GIB):
        return
    of = f" of the card's {card:.0f}" if card else ""
    fused = {
        Trainer.LLAMA_FACTORY: "enable_liger_kernel: true",
        Trainer.AXOLOTL: "plugins: [axolotl.integrations.liger.LigerPlugin]` with `liger_fused_linear_cross_entropy: true",
    }
    key = fused.get(job.trainer, "use_liger_kernel: true")
    yield Finding(
        f"Logits of up to {tokens:,} tokens over {model.vocabulary:,} words stand in memory at once: about {gib:.0f}{of} GiB"
        " with their float32 copy and gradient.",
        place=job.place("per_device_train_batch_size"),
        evidence=Evidence(Level.RESOLVED, {"tokens": tokens, "vocabulary": model.vocabulary, "GiB": round(gib, 1)}),
        stake=Stake(AtStake.MEMORY, gib / 2, gib, "tokens x vocabulary x 10 bytes"),
        remedy=Remedy(
            Risk.NUMERIC,
            f"Compute the loss in chunks: `{key}`, or train with `dynotune {'dpo' if job.method is Method.DPO else 'sft'}`.",
            breaks="Liger must have kernels for the model (CMP001).",
            accuracy="Sums round otherwise.",
            measure="dynotune plan --config sft.yaml",
        ),
    )


def _batch_by_another_name(job: Job) -> bool:
    """Which the trainer does not read: the batch that it would take is nobody's."""
    unread = any("batch_size" in key.name and "eval" not in key.name for key in job.given if key.fate is not Fate.KNOWN)
    return unread and not job.is_given("per_device_train_batch_size")


def _materialises(job: Job, project: Project) -> bool:
    if job.get("use_liger_kernel") is True or any((key := given(job, name)) and key.value for name in FUSED):
        return False
    if job.trainer is Trainer.TRL:
        return job.method in (Method.SFT, Method.DPO) and at_least(job, "trl", 1, 7) is False
    if job.trainer is Trainer.AXOLOTL:
        plugins = given(job, "plugins")
        return plugins is None and job.method is Method.SFT
    if job.trainer is Trainer.LLAMA_FACTORY:
        training = given(job, "do_train")
        return training is not None and training.value is True and job.method is not Method.OTHER
    if job.trainer is not Trainer.TRANSFORMERS:
        return False
    # Whose name has no task says by its script whether it has a language model's head.
    heads = any("CausalLM" in project.texts.get(file, "") for file in job.files)
    return job.method in (Method.SFT, Method.PRETRAINING) or (job.method is None and heads)


_LOGITS = re.compile(r"\blogits\b|_logits\b")
_SMALL = re.compile(
    r"classif|num_labels|reward|score|router|gate|aux|value_head|ForSequence|ForTokenClass", re.IGNORECASE
)


def _copied(script: Script, project: Project) -> Iterator[Said]:
    near = "\n".join(one.source for one in together(script, project))
    if _SMALL.search(script.source) or not re.search(r"CausalLM|SFTTrainer|DPOTrainer|compute_loss|vocab", near):
        return
    calls = [call for loop in loops(script) for call in loop.calls if call.each_step]
    calls += per_step(script, "compute_loss", "get_batch_loss_metrics")
    calls += [call for call in script.calls if _in_a_loss(call)]
    users = [one for one in together(script, project) if one is not script] if "logits" in script.source else []
    calls += [call for user in users for other, held in helpers(user, project) if other is script for call in held]
    whole = [call for call in {call.place: call for call in calls}.values() if _copies(script, call)]
    size = _size(script, project)
    if not whole and size is not None:
        whole = [call for call in per_step(script, "forward") if _of_ones_own_head(script, call)]
    if not whole or (size is not None and size * len(whole) < COPY):
        return
    first, *more = whole
    words = _words(script, project)
    each = f"{2_048 * words * 4 / 2**30:.1f} GiB for every 2,048 tokens of a vocabulary of {words:,}"
    here = f"{size:.1f} GiB here" if size is not None else each
    graded = not any(one.kind == "with" and re.search(r"no_grad|inference_mode", one.name) for one in first.around)
    gathered = any(call.name.rpartition(".")[2] == "log_softmax" for call in whole) and "gather(" in script.source
    makes = (
        "log-probabilities of all words, of which one a token is gathered: a copy of"
        if gathered
        else "a second copy of"
    )
    yield Finding(
        f"`{' '.join(text_at(script, first.place).split())}` makes {makes} all logits (rows x tokens x vocabulary) in"
        f" 4 bytes each: {here}{', each of the copies' if len(whole) > 1 else ''}"
        f"{', and as much again for gradients' if graded else ''}.",
        place=first.place,
        evidence=Evidence(Level.TEXT, {"copies": len(whole)}),
        stake=Stake(AtStake.MEMORY, 1.2, None, "arithmetic: 2,048 tokens x 152,000 words x 4 bytes"),
        remedy=Remedy(
            Risk.NUMERIC,
            "Take `-cross_entropy(..., reduction='none')`, or the gathered logit minus `logsumexp`, of the logits that carry"
            " loss (index by `labels != -100` first), in chunks."
            if gathered
            else _keep(near),
            effort=Effort.HOURS,
            measure="dynotune profile -- python train.py",
        ),
        also=tuple(call.place for call in more),
    )


def _keep(near: str) -> str:
    """In words that fit: labels that are partly masked, a model of transformers, or one of its own."""
    ways = ["keep the logits that carry loss alone (index by `labels != -100` first)"] if "-100" in near else []
    ways.append("take head and loss in chunks of rows")
    if re.search(r"kl_div|KLDiv", near):
        ways.append("fuse head and divergence (`LigerFusedLinearJSD`)")
    elif "from_pretrained(" in near:
        ways.append("let the model compute the loss (`model(labels=...)`) with a fused head")
    else:
        ways.append("fuse them (`LigerFusedLinearCrossEntropyLoss`)")
    told = ", ".join(ways[:-1]) + f", or {ways[-1]}."
    return told[0].upper() + told[1:]


def _words(script: Script, project: Project) -> int:
    """Of the vocabulary: the project's, where it is known, or a usual one."""
    near = {one.file for one in together(script, project)}
    models = [sized(job) for job in project.jobs if near & set(job.files)]
    every = {one.vocabulary for one in models if one is not None}
    return every.pop() if len(every) == 1 and None not in models else 152_000


_LENGTH = re.compile(r"-{0,2}max[-_](?:seq[-_])?len(?:gth)?", re.IGNORECASE)
COPY = 2.0
"""GiB of a copy below which it decides nothing."""


def _of_ones_own_head(script: Script, call: Call) -> bool:
    """`logits = self.head(x).float()` in a forward pass that computes its loss of them."""
    last = call.name.rpartition(".")[2]
    head = re.search(r"(?:head|unembed|output|proj|decoder)\w*\(", call.on)
    copies = last == "float" or (last == "to" and "float32" in text_at(script, call.place))
    return bool(copies and head and _LOGITS.search(call.result) and "cross_entropy(" in script.source)


def _size(script: Script, project: Project) -> float | None:
    """GiB of the copy at most, over all jobs of the script's program; None: it is not known of all of them."""
    near = {one.file: one for one in together(script, project)}
    told = [
        setting.value
        for one in near.values()
        for name, setting in one.constants.items()
        if _LENGTH.fullmatch(name) and isinstance(setting.value, int)
    ]
    found = []
    for job in (one for one in project.jobs if near.keys() & set(one.files)):
        model, rows = sized(job), micro_batch(job)
        length = max_length(job) or (told[0] if len(set(told)) == 1 else None) or number(job, "own_model_context")
        if model is None or rows is None or length is None:
            return None
        each = 2 if "chosen" in script.source else 1  # both answers of a pair go through the model
        found.append(each * rows * length * model.vocabulary * 4 / 2**30)
    return max(found) if found else None


def _in_a_loss(call: Call) -> bool:
    """A function of the file's that is named after what it computes from logits."""
    functions = [around.name for around in call.around if around.kind == "function"]
    return any(re.search(r"loss|log_?p(rob)?s?\b", name) and "eval" not in name for name in functions)


def _copies(script: Script, call: Call) -> bool:
    """All of the logits, not a part: `logits.float()`, `F.log_softmax(logits, ...)`."""
    last = call.name.rpartition(".")[2]
    whole = re.compile(r"[\w.]*logits(\[(\.\.\.|:)[^\]]*\])?(\.contiguous\(\))?(\.(?:view|reshape|flatten)\(.*\))?$")
    if last == "float" and re.fullmatch(r"\w+", call.on):
        given = rf"(?m)^\s*{call.on}\s*=\s*[^=\n].*\.logits(?:\[[^\n]*\])?\s*$"
        if re.search(given, script.source):
            return True
    if last == "float" and call.on:
        return bool(whole.fullmatch(call.on)) or call.on.endswith(").logits")
    if last == "to" and call.on and bool(whole.fullmatch(call.on)):
        return "float32" in text_at(script, call.place)
    if last in ("log_softmax", "softmax"):
        text = text_at(script, call.place)
        inner = re.match(rf"[\w.]*{last}\(\s*([\w.]+)", text)
        taken = call.on if _LOGITS.search(call.on) else inner[1] if inner else ""
        return bool(_LOGITS.search(taken)) and "gather" in script.source
    return False


_LOSS = """from trl import SFTTrainer
import torch.nn.functional as F


class Mine(SFTTrainer):
    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
%s
"""
_BAD = """        logits = model(**inputs).logits
        return F.cross_entropy(logits.float().flatten(0, 1), inputs["labels"].flatten())"""
_GOOD = "        return model(**inputs).loss"


RULE = Rule(
    code="MEM003",
    name="logits-materialised",
    summary="The logits of a whole micro-batch are materialised, or a loss copies them to float32.",
    group=Group.MEMORY,
    subject=Subject.PROJECT,
    check=check,
    page=Page(
        what="The head makes a number for every token and word, transformers or a loss of one's own copies them to float32,"
        " and their gradient is as large.",
        why="With 150,000 words it is the largest thing in memory, and decides the batch, for tokens that mostly carry no"
        " loss.",
        detected=f"E1: tokens x vocabulary x {BYTES} bytes for trainers without a fused head; said above {SHARE:.0%} of the"
        f" card (this machine's, or the one that the job's files name), or {GIB:g} GiB where it is not known. E0: `.float()`"
        " of all logits, or a `log_softmax` of them that is gathered from, at every step of a language model's training."
        " Parts that are indexed first are not reported. E0: `compute_metrics` of a causal model without"
        " `preprocess_logits_for_metrics`. E0: the last position alone is read of the logits of long rows.",
        proven="`dynotune profile -- python train.py` lists the largest allocations.",
        deliberate=(
            "Metrics are computed from the logits.",
            "Few tokens are labelled, and indexed before in a way that reading does not see.",
        ),
        sources=(
            "H200, 16,384 tokens, 152,064 words: 28.5 GB with full float32 logits, 2.5 in chunks, at 79 and 56 ms",
            "LLaMA-Factory's DPO: float32 logits of both sides twice a step",
            "TRL issue 7244: 19.9 GiB with logits, 6.1 GiB with a fused head, 8,192 tokens",
        ),
    ),
    bad=Example({"run.yaml": _LF}, says="151,936 words"),
    good=Example({"run.yaml": f"{_LF}enable_liger_kernel: true\n", "train.py": _LOSS % _GOOD}),
    also_bad=(Example({"train.py": _LOSS % _BAD}, says="all logits"),),
    formerly=("MEM050",),
    former_names=("logits-in-float32",),
)

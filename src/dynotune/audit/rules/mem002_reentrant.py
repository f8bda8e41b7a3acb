"""MEM002: checkpointing by the re-entrant implementation, asked for or by default."""

import re
from collections.abc import Iterator, Mapping

from dynotune.audit.change import Change, Edit
from dynotune.audit.facts.asked import adapters, given, number
from dynotune.audit.facts.job import Job, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Call, Script
from dynotune.audit.facts.together import code, connected, together
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

_SFT = "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: data.jsonl\ngradient_checkpointing: true\n"


def check(project: Project, _: Project) -> Iterator[Said]:
    stopped: set[str] = set()
    for script in project.scripts:
        yield from _by_default(script, project)
        yield from _switched_on(script, project)
        for found in _under_adapters(script, project):
            stopped.add(script.file)
            yield found
    for job in project.jobs:
        if not stopped & set(job.files):  # said already, and what comes of it
            yield from _asked_for(job, project)
            yield from _by_llama_factory(job)


def _by_llama_factory(job: Job) -> Iterator[Said]:
    """Its own key, which somebody wrote down."""
    key = given(job, "use_reentrant_gc")
    off = given(job, "disable_gradient_checkpointing")
    if job.trainer is not Trainer.LLAMA_FACTORY or key is None or key.value is not True or (off and off.value is True):
        return
    yield Finding(
        "`use_reentrant_gc: true` keeps checkpointing's old implementation, which PyTorch advises against: it replays the"
        " forward pass inside the backward one, which compiled code, hooks and DistributedDataParallel do not expect"
        f"{', and with a frozen base it needs inputs that require gradients' if adapters(job) else ''}.",
        place=key.place,
        evidence=Evidence(Level.RESOLVED, {"use_reentrant_gc": True, "adapters": adapters(job)}),
        stake=Stake(AtStake.CLARITY),
        remedy=Remedy(
            Risk.SAFE, "Set `use_reentrant_gc: false`.", (Change(Edit.SET, key.place, "use_reentrant_gc", False),)
        ),
    )


_LETS_GRADIENTS_IN = re.compile(
    r"\b(?:enable_input_require_grads|prepare_model_for_kbit_training)\(|hook\(\s*make_inputs_require_grad"
)
_OTHER_TROUBLES = re.compile(r"torch\.compile|torch_compile|DistributedDataParallel|fully_shard|backward_hook")


def _works(text: str) -> bool:
    """Somebody has seen to it: adapters' inputs require gradients, and nothing is there that the old way trips over."""
    return "LoraConfig(" in text and bool(_LETS_GRADIENTS_IN.search(text)) and not _OTHER_TROUBLES.search(text)


def _asked_for(job: Job, project: Project) -> Iterator[Said]:
    kwargs = job.get("gradient_checkpointing_kwargs")
    if not isinstance(kwargs, Mapping) or kwargs.get("use_reentrant") is not True:
        return
    if job.get("gradient_checkpointing") is False or job.trainer is Trainer.DYNOTUNE:
        return
    if job.get("deepspeed") and adapters(job) is not False:
        return  # adapters under ZeRO-3 need it, and TRL sets it there
    processes, lora = number(job, "num_processes"), adapters(job)
    several = processes is not None and processes > 1
    near = "\n".join(code(one) for one in project.scripts if one.file in job.files)
    if lora and not several and job.get("torch_compile") is not True and _works(near):
        return
    troubles = ["it replays the forward pass inside the backward one, which compiled code and hooks do not expect"]
    if several:
        troubles.append("several processes may fail with `marked ready twice`")
    if lora:
        troubles.append("with a frozen base it needs inputs that require gradients")
    yield Finding(
        "`use_reentrant: true` is checkpointing's old implementation, which PyTorch advises against:"
        f" {'; '.join(troubles)}.",
        place=job.place("gradient_checkpointing_kwargs"),
        evidence=Evidence(Level.RESOLVED, {"use_reentrant": True, "processes": processes, "adapters": lora}),
        stake=Stake(AtStake.CLARITY),
        remedy=Remedy(
            Risk.SAFE,
            "Set `use_reentrant: false`.",
            (job.set("gradient_checkpointing_kwargs", {**kwargs, "use_reentrant": False}),),
        ),
    )


def _switched_on(script: Script, project: Project) -> Iterator[Said]:
    """`gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": True})` and peft's preparation."""
    text = code(script)
    started = [job for job in project.jobs if script.file in job.files]
    alone = not any((number(job, "num_processes") or 1) > 1 for job in started)
    for call in script.calls_of("gradient_checkpointing_enable", "prepare_model_for_kbit_training"):
        given = call.arguments.get("gradient_checkpointing_kwargs") or call.arguments.get("0")
        kwargs = given.value if given is not None else None
        if isinstance(kwargs, Mapping) and kwargs.get("use_reentrant") is True and not (alone and _works(text)):
            yield Finding(
                "`use_reentrant: true` is checkpointing's old implementation, which PyTorch advises against: it replays the"
                " forward pass inside the backward one, which compiled code, hooks and DistributedDataParallel do not"
                " expect, and with a frozen base it needs inputs that require gradients.",
                place=given.place if given is not None and given.place.file == script.file else call.place,
                evidence=Evidence(Level.TEXT, {"use_reentrant": True, "call": call.name.rpartition(".")[2]}),
                stake=Stake(AtStake.CLARITY),
                remedy=Remedy(Risk.SAFE, "Give `use_reentrant=False`."),
            )


def _by_default(script: Script, project: Project) -> Iterator[Said]:
    calls = [call for call in script.calls if call.name.startswith("torch.utils.checkpoint.checkpoint")]
    near = "\n".join(code(one) for one in connected(script, project)) if calls else ""
    for call in calls:
        given = call.arguments.get("use_reentrant")
        if given is not None and given.value is True and (frozen := _frozen_beginning(script)):
            yield _no_gradient(call, frozen)
        elif given is not None and given.value is True and not given.others and _OTHER_TROUBLES.search(near):
            unused = re.search(r"find_unused_parameters\s*=\s*True", near)
            then = "; beside `find_unused_parameters=True` the run stops at `marked ready twice`" if unused else ""
            yield Finding(
                "`use_reentrant=True` is checkpointing's old implementation, which PyTorch advises against: it replays the"
                " forward pass inside the backward one, which compiled code, hooks and DistributedDataParallel do not"
                f" expect{then}.",
                place=call.place,
                evidence=Evidence(Level.TEXT, {"use_reentrant": True}),
                stake=Stake(AtStake.CLARITY),
                remedy=Remedy(
                    Risk.SAFE, "Give `use_reentrant=False`.", (Change(Edit.SET, call.place, "use_reentrant", False),)
                ),
            )
        if given is not None or "**" in call.arguments:
            continue
        yield Finding(
            "`checkpoint(...)` without `use_reentrant` takes the reentrant way: with frozen weights before it no"
            " gradient passes, and a coming release of PyTorch refuses the call.",
            place=call.place,
            evidence=Evidence(Level.TEXT, {"use_reentrant": None}),
            stake=Stake(AtStake.RESULT) if "peft" in script.source else Stake(AtStake.CLARITY),
            remedy=Remedy(
                Risk.SAFE,
                "Give `use_reentrant=False`.",
                (Change(Edit.SET, call.place, "use_reentrant", False),),
                breaks="A function that draws other shapes when it is recomputed is then an error.",
                measure="Compare the gradient's norm of one step.",
            ),
        )


ENABLES_INPUTS = (5, 0)
"""The release of transformers from which on checkpointing is not re-entrant by default, and lets gradients in at the
embedding whoever has made the adapters (4.57 does so only for those of its own `add_adapter`)."""


def _under_adapters(script: Script, project: Project) -> Iterator[Finding]:
    """Checkpointing is switched on for a model that has adapters already, by a release that is re-entrant by default and
    leaves the frozen embedding's output without a gradient. PEFT lets gradients in where it was on before."""
    pinned = project.pinned("transformers")
    if pinned is None or pinned >= ENABLES_INPUTS:
        return
    wraps = script.calls_of("get_peft_model")
    near = "\n".join(code(one) for one in together(script, project))
    if not wraps or _ADAPTERS_LEARN.search(near):
        return
    yield from _behind(script, wraps[0], pinned)
    if "gradient_checkpointing_enable" not in near:
        yield from _by_a_trainer(script, wraps[0], project, pinned)


_ADAPTERS_LEARN = re.compile(
    r"enable_input_require_grads|prepare_model_for_kbit|make_inputs_require_grad|embed_tokens|\bwte\b|word_embeddings"
)
"""What lets gradients in at the embedding, or trains it."""


def _behind(script: Script, wraps: Call, pinned: tuple[int, ...]) -> Iterator[Finding]:
    """`model.gradient_checkpointing_enable()` behind `model = get_peft_model(...)`."""
    for call in script.calls_of("gradient_checkpointing_enable"):
        kwargs = call.arguments.get("gradient_checkpointing_kwargs") or call.arguments.get("0")
        given = kwargs.value if kwargs is not None else {}
        plain = isinstance(given, Mapping) and given.get("use_reentrant") is not False and "**" not in call.arguments
        after = call.place.line > wraps.place.line and _function(call) == _function(wraps)
        if after and plain and call.on.partition(".")[0] == wraps.result:
            what = f"`{call.on}.gradient_checkpointing_enable(...)` behind `get_peft_model`"
            yield _gets_none(what, call.place, wraps.place, pinned)
            return


def _by_a_trainer(script: Script, wraps: Call, project: Project, pinned: tuple[int, ...]) -> Iterator[Finding]:
    """transformers' trainer switches it on before the first step, for a model that came with adapters."""
    for job in project.jobs:
        kwargs = job.setting("gradient_checkpointing_kwargs")
        known = kwargs is None or kwargs.is_known
        given = kwargs.value if kwargs is not None else None
        if job.trainer is not Trainer.TRANSFORMERS or script.file not in job.files or not known:
            continue
        if job.get("gradient_checkpointing") is not True or (
            isinstance(given, Mapping) and given.get("use_reentrant") is False
        ):
            continue
        what = "`gradient_checkpointing: true` for a model that `get_peft_model` has made"
        if isinstance(given, Mapping) and given.get("use_reentrant") is True:
            yield _gets_none(what, job.place("gradient_checkpointing_kwargs"), wraps.place, pinned, asked=True)
        else:
            yield _gets_none(what, job.place("gradient_checkpointing"), wraps.place, pinned)
        return


def _gets_none(what: str, place: Place, wraps: Place, pinned: tuple[int, ...], asked: bool = False) -> Finding:
    version = ".".join(map(str, pinned))
    why = "`use_reentrant: true` is asked for" if asked else f"in transformers {version} it is re-entrant"
    return Finding(
        f"{what}: {why}, and the frozen embedding's output needs no gradient, so that"
        " adapters get none: the backward pass stops, or trains nothing.",
        place=place,
        evidence=Evidence(Level.TEXT, {"transformers": version, "adapters": wraps.line}),
        stake=Stake(AtStake.STOPS),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            'Give `gradient_checkpointing_kwargs={"use_reentrant": False}`, or call `enable_input_require_grads()` before.',
            accuracy="The adapters are trained.",
            measure="Count the adapters whose `.grad` is None after one step.",
        ),
        also=(wraps,),
    )


def _function(call: Call) -> str:
    return next((around.name for around in reversed(call.around) if around.kind == "function"), "")


_LETS_IN = re.compile(r"enable_input_require_grads|requires_grad_\(\s*(True)?\s*\)|requires_grad\s*=\s*True")
_FROZEN = re.compile(
    r"(?<![a-z])[\w.]*(?:emb|wte|tok|pos)\w*(?:\.weight)?\.requires_grad(?:_\(\s*False\s*\)|\s*=\s*False)"
    r"|for (\w+) in [\w.]*(?:emb|wte|tok|pos)\w*\.parameters\(\):\s+\1\.requires_grad(?:_\(\s*False\s*\)|\s*=\s*False)"
)


def _frozen_beginning(script: Script) -> str:
    """The statement that freezes what the first block is given, where nothing lets gradients in behind it."""
    found = _FROZEN.search(script.source)
    return "" if found is None or _LETS_IN.search(script.source) else found[0]


def _no_gradient(call: Call, frozen: str) -> Finding:
    return Finding(
        f"Checkpointing is re-entrant, and `{frozen}` leaves its first input without a gradient: no block's weights get"
        " any, and only what stands behind the blocks is trained.",
        place=call.place,
        evidence=Evidence(Level.TEXT, {"use_reentrant": True, "frozen": frozen}),
        stake=Stake(AtStake.RESULT),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            "Give `use_reentrant=False`.",
            (Change(Edit.SET, call.place, "use_reentrant", False),),
            accuracy="The blocks are trained.",
            measure="Count the parameters of the blocks whose `.grad` is None after one step.",
        ),
    )


_BLOCK = """import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def forward(self, x):
        return checkpoint(self.inner, x)
"""
RULE = Rule(
    code="MEM002",
    name="reentrant-checkpointing",
    summary="Gradient checkpointing uses the re-entrant implementation.",
    group=Group.CONFIGURATION,
    subject=Subject.PROJECT,
    check=check,
    page=Page(
        what="PyTorch has two implementations of checkpointing; the one without re-entry is recommended and becomes the"
        " default.",
        why="The old one runs a backward pass inside the backward pass: it gives up on compiled regions, breaks"
        " with DDP"
        " where a parameter is used twice, and gives no gradient where no input needs one.",
        detected="E1: `gradient_checkpointing_kwargs: {use_reentrant: true}`, given"
        " (LLaMA-Factory's `use_reentrant_gc`), or in the call that"
        " switches it on. E0: a call of"
        " `torch.utils.checkpoint.checkpoint` or `checkpoint_sequential` without `use_reentrant`, or with it"
        " true in a file that freezes what comes before the blocks, compiles, or wraps the model for several processes; a"
        " call of `gradient_checkpointing_enable` behind"
        " `get_peft_model`, or transformers' trainer with `gradient_checkpointing` for what that has made, with a release of"
        " transformers asked for that lets no gradient in.",
        proven="Both give the same gradients.",
        deliberate=("A model whose forward pass the other one cannot replay (it compares what is saved).",),
        sources=("PyTorch's documentation of `torch.utils.checkpoint`; TorchFix's rule TOR003",),
    ),
    bad=Example(
        {"sft.yaml": f"{_SFT}gradient_checkpointing_kwargs:\n  use_reentrant: true\n"}, says="PyTorch advises against"
    ),
    good=Example({"sft.yaml": f"{_SFT}gradient_checkpointing_kwargs:\n  use_reentrant: false\n"}),
    also_bad=(Example({"model.py": _BLOCK}, says="takes the reentrant way"),),
    formerly=("MEM051",),
    former_names=("checkpoint-without-a-kind",),
)

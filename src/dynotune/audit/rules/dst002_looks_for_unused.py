"""DST002: every step searches for parameters without a gradient."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from dynotune.audit.facts.asked import number
from dynotune.audit.facts.job import Job, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.together import code, imported
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.models import known, reader
from dynotune.audit.rule import Example, Group, Page, Rule, Subject
from dynotune.audit.shapes.every_weight_is_used import every_weight_is_used
from dynotune.audit.shapes.one_head_a_step import one_head_a_step
from dynotune.audit.shapes.unused_by_lightning import unused_by_lightning

_HUB = re.compile(r"""['"]([A-Za-z][\w-]+/[\w.-]*\d[\w.-]*[bBmM]\b[\w.-]*)['"]""")
"""Names of models on the hub, with a size."""

_SFT = "model_name_or_path: Qwen/Qwen2.5-7B\ndataset_name: data.jsonl\nmax_length: 2048\n"


def check(project: Project, _: Project) -> Iterator[Said]:
    for job in project.jobs:
        yield from _asked_by(job, project)
    for script in project.scripts:
        yield from unused_by_lightning(script, project)
        yield from one_head_a_step(script, project)


def _asked_by(job: Job, project: Project) -> Iterator[Said]:
    if job.get("ddp_find_unused_parameters") is not True or not job.is_given("ddp_find_unused_parameters"):
        return
    processes = number(job, "num_processes")
    if processes == 1 or job.trainer is Trainer.DYNOTUNE or not _is_dense(job, project):
        return  # only of models that are known to be dense and to read text alone
    told = job.get("gradient_checkpointing_kwargs")
    reentrant = not isinstance(told, Mapping) or told.get("use_reentrant") is not False
    checkpointing = job.get("gradient_checkpointing") is True and reentrant
    also = "; with gradient checkpointing it can fail with `marked ready twice`" if checkpointing else ""
    yield Finding(
        f"`{job.called('ddp_find_unused_parameters')}: true` walks the whole graph after every forward pass to look for"
        f" parameters that no loss depends on{also}. This model has none: every weight takes part in each step.",
        place=job.place("ddp_find_unused_parameters"),
        evidence=Evidence(Level.RESOLVED, {"ddp_find_unused_parameters": True, "processes": processes}),
        stake=Stake(AtStake.TIME),
        remedy=Remedy(
            Risk.OPERATIONAL,
            f"Set `{job.called('ddp_find_unused_parameters')}: false`, and look whether the first steps run.",
            breaks="Where some parameter is unused (experts, heads), a step then waits for its gradient and stops.",
            measure="dynotune profile -- torchrun --nproc-per-node 2 train.py",
        ),
    )


_DENSE = re.compile(
    r"^transformers\.(?:models\.[\w.]+\.)?(?:GPT2|GPTNeoX?|GPTJ|OPT|Bloom|Llama|Mistral|Qwen[23]|Gemma[2]?|Olmo2?|Phi3?|SmolLM3)"
    r"(?:Config|ForCausalLM|LMHeadModel)$"
)
"""Classes of language models in which every weight takes part in each step."""


_SEQ2SEQ = re.compile(
    r"(?:^|/)(?:flan-)?m?t5-|(?:^|/)(?:distil)?m?bart-|(?:^|/)pegasus-|(?:^|/)opus-mt-", re.IGNORECASE
)
"""Names of models with an encoder and a decoder, in which every weight takes part in each step."""


_OF_IMAGES = re.compile(
    r"\.(?:(?:wide_)?resnet\d+\w*|resnext\d+\w*|vit_[bhl]_\d+|convnext_\w+|densenet\d+|vgg\d+(?:_bn)?|swin_\w+)$"
)
"""Torchvision's models that run every layer at each step."""


def _is_dense(job: Job, project: Project) -> bool:
    """By its name; where that is not known, by the names that the loop's files have, all of them; without any, by the
    classes that the program's files define or make."""
    named = job.get("model_name_or_path")
    if known(named) is not None or _is_reader(named, [one for one in project.scripts if one.file in job.files]):
        return True
    if job.trainer is not Trainer.TORCH:
        return isinstance(named, str) and _is_seq2seq(named, [one for one in project.scripts if one.file in job.files])
    scripts = [one for one in project.scripts if one.file in job.files]
    every = {one.file: one for script in scripts for one in (script, *imported(script, project))}
    names = {one for script in every.values() for one in _HUB.findall(code(script))}
    if isinstance(named, str) and _SEQ2SEQ.search(named):
        return _is_seq2seq(named, every.values())
    if isinstance(named, str) and named.count("/") == 1 and known(named) is None and named not in names and not names:
        return False  # a model of which nothing is known
    loads = [call for one in every.values() for call in one.calls_of("from_pretrained") if "Model" in call.name]
    vision = [call for one in every.values() for call in one.calls if call.name.startswith("torchvision.models.")]
    if not loads and vision and all(_OF_IMAGES.search(call.name) for call in vision):
        return True
    if not loads and (every_weight_is_used(project.imports.reached(scripts)) or _made(list(every.values()))):
        return True
    return bool(names) and all(map(known, names)) and all("ForCausalLM" in call.name for call in loads)


_OF_READERS = re.compile(
    r"^transformers\.(?:models\.[\w.]+\.)?"
    r"(?:Auto(?:ModelFor)|(?:Bert|Roberta|XLMRoberta|DistilBert|Electra|Deberta(?:V2)?|ModernBert|Albert|Camembert)For)"
    r"(?:SequenceClassification|TokenClassification|QuestionAnswering|MaskedLM|MultipleChoice)\.from_pretrained$"
)
"""Encoders under a head of transformers' own: it leaves out the pooler where it does not use it."""


def _is_reader(named: object, scripts: Iterable[Script]) -> bool:
    """Encoders by name, each loaded under a head of transformers', and no part of it called alone."""
    loads = [call.name for one in scripts for call in one.calls_of("from_pretrained") if "Tokenizer" not in call.name]
    models = [name for name in loads if re.search(r"Model|Bert|Electra|roberta", name, re.IGNORECASE)]
    return reader(named) is not None and bool(models) and all(map(_OF_READERS.match, models))


def _is_seq2seq(named: str, scripts: Iterable[Script]) -> bool:
    scripts = list(scripts)
    if any(re.search(r"\.(?:encoder|decoder)\(|get_(?:en|de)coder\(", code(one)) for one in scripts):
        return False  # a part of it alone may run
    loads = [
        call.name
        for one in scripts
        for call in one.calls_of("from_pretrained")
        if "Model" in call.name or "For" in call.name
    ]
    whole = [one for one in loads if "Seq2SeqLM" in one or "ForConditionalGeneration" in one]
    return bool(loads) and len(whole) == len(loads) and _SEQ2SEQ.search(named) is not None


def _made(scripts: Sequence[Script]) -> bool:
    """From a configuration, by a class that is dense, and no other: `LlamaForCausalLM(LlamaConfig(...))`."""
    of_models = re.compile(r"^transformers\.[\w.]*(?:Config|ForCausalLM|LMHeadModel|Model)$")
    made = [call.name for one in scripts for call in one.calls if of_models.match(call.name)]
    return bool(made) and all(map(_DENSE.match, made))


RULE = Rule(
    code="DST002",
    name="looks-for-unused-parameters",
    summary="DDP looks for unused parameters at every step.",
    group=Group.PERFORMANCE,
    subject=Subject.PROJECT,
    check=check,
    page=Page(
        what="DDP can search the autograd graph for parameters that get no gradient, so that ranks do not wait for them.",
        why="The search takes time on the host at every step, and gradients are sent later.",
        detected="E1: the key, given, for a model that is dense by its name, or by classes of the program's own that use"
        " every layer they make whenever they are called, for T5, BART and the like, and for torchvision's image"
        " models; the"
        " strategy of a Lightning trainer; unless the job is known to have one process.",
        proven="Without it DDP warns or stops where parameters are unused.",
        deliberate=("A mixture of experts, or a model with heads that a step does not use.",),
        sources=("PyTorch's documentation of `DistributedDataParallel`",),
    ),
    bad=Example({"sft.yaml": f"{_SFT}ddp_find_unused_parameters: true\n"}, says="walks the whole graph"),
    good=Example({"sft.yaml": f"{_SFT}ddp_find_unused_parameters: false\n"}),
)

"""DST057: every rank goes over all rows, since nothing divides them."""

import re
from collections.abc import Iterator

from dynotune.audit.facts.launch import Launch
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import loops, text_at
from dynotune.audit.facts.together import code, together
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

_WRAPPED = re.compile(r"DistributedDataParallel\(|\bDDP\(|FullyShardedDataParallel\(|\bFSDP\(|fully_shard\(")
_DIVIDED = re.compile(
    r"[sS]ampler|split_dataset_by_node|\.shard\(|shards?\b|get_worker_info|Iterable|Accelerator|\.prepare\(|deepspeed"
    r"|\[[^\]\n]{0,80}rank|%\s*\w*(world|ranks|num_processes)|seed\s*\+\s*\w*rank|seed\w*\([^)\n]{0,80}rank|islice|scatter"
    r"|tensor_parallel|device_mesh|DataLoaderDispatcher"
)


_NOTHING = re.compile(r"device_ids\s*=\s*\[[^\]\n]*\]|gpus?\[[^\]\n]*\]|^\s*(?:from|import)\s[^\n]*", re.MULTILINE)
"""Text that names a rank or a sampler and divides no rows."""


def check(script: Script, project: Project) -> Iterator[Said]:
    yield from _not_prepared(script, project)
    near = [_NOTHING.sub("", code(one)) for one in together(script, project)]
    if not any(_WRAPPED.search(text) for text in near) or any(_DIVIDED.search(text) for text in near):
        return
    yield from _drawn_alike(script, project)
    for loop in loops(script):
        read = set(re.findall(r"\w+", loop.text.partition("\n")[0].partition(" in ")[2]))
        for call in script.calls_of("DataLoader"):
            if call.result not in read or {"sampler", "batch_sampler", "3", "4", "*", "**"} & set(call.arguments):
                continue
            shuffled = call.arguments.get("shuffle")
            how = "in its own order" if shuffled is not None and shuffled.value is True else "in the same order"
            yield Finding(
                f"`{call.result}` has no distributed sampler, and nothing else divides the rows: each of N"
                f" processes goes"
                f" over all of them, {how}, so that an epoch is N epochs"
                f"{', or N times the same batch' if how == 'in the same order' else ''}.",
                place=call.place,
                evidence=Evidence(Level.TEXT, {"sampler": None, "shuffled": how == "in its own order"}),
                stake=Stake(AtStake.RESULT),
                remedy=Remedy(
                    Risk.BEHAVIOURAL,
                    "Give it `sampler=DistributedSampler(rows, shuffle=True)` and call `set_epoch` before each epoch.",
                    accuracy="Every row is seen once an epoch.",
                    measure="Print the first row's id on each rank.",
                ),
                also=(loop.place,),
            )
            return


_PREPARES = re.compile(r"\.prepare(?:_data_loader)?\(([^)]*)\)")


def _not_prepared(script: Script, project: Project) -> Iterator[Said]:
    """A loader that a loop of Accelerate's reads, and that was never given to `prepare`, on several processes."""
    if "Accelerator(" not in script.source or not any(_started_on_several(one) for one in project.launches):
        return
    text = code(script)
    handed = " ".join(_PREPARES.findall(text))
    others = re.sub(r"\.prepare\(|Accelerator", "", text)
    if not handed or "*" in handed or _DIVIDED.search(others) or "skip_first_batches" in text:
        return
    for loop in loops(script):
        read = set(re.findall(r"\w+", loop.text.partition("\n")[0].partition(" in ")[2]))
        for call in script.calls_of("DataLoader"):
            name = call.result
            if (
                name not in read
                or re.search(rf"\b{name}\b", handed)
                or {"sampler", "batch_sampler"} & set(call.arguments)
            ):
                continue
            if not any("accelerat" in one.on.lower() for one in loop.has("backward")):
                continue
            yield Finding(
                f"`{name}` was not given to `accelerator.prepare`: nothing divides its rows, and each of N processes goes"
                " over all of them; batches stay on the CPU besides.",
                place=call.place,
                evidence=Evidence(Level.TEXT, {"prepared": handed[:80]}),
                stake=Stake(AtStake.RESULT),
                remedy=Remedy(
                    Risk.BEHAVIOURAL,
                    f"Prepare it with the model: `{name} = accelerator.prepare({name})`.",
                    accuracy="Every row is seen once an epoch.",
                    measure="Print the first row's id on each rank.",
                ),
                also=(loop.place,),
            )
            return


def _started_on_several(launch: Launch) -> bool:
    counts = [launch.launcher_flags.get(name) for name in ("num_processes", "nproc_per_node")]
    return any(one is not None and type(one.value) is int and one.value > 1 for one in counts)


_DRAWS = ("randint", "randperm", "choice", "sample", "integers", "shuffle", "permutation", "rand")
_SEEDED = re.compile(r"(?:manual_seed(?:_all)?|random\.seed|set_seed|seed_everything)\(([^()\n]*)\)")


def _drawn_alike(script: Script, project: Project) -> Iterator[Said]:
    """Rows are drawn at random by what each step calls, and every rank begins from the same seed."""
    near = together(script, project)
    seeds = [given for one in near for given in _SEEDED.findall(code(one))]
    if not seeds or any(re.search(r"rank|offset|local|process|worker|os\.|time", given) for given in seeds):
        return
    if any(re.search(r"[gG]enerator\(|default_rng|RandomState", one.source) for one in near):
        return
    for loop in loops(script):
        if loop.place.line and any(one.name.rpartition(".")[2] == "DataLoader" for one in script.calls):
            return
        for call in loop.calls:
            last = call.name.rpartition(".")[2]
            drawn = call.name.startswith(("torch.", "numpy.random", "random.")) and last in _DRAWS
            text = text_at(script, call.place)
            function = next((one.name for one in reversed(call.around) if one.kind == "function"), "")
            rows = re.search(r"batch|data|rows|sample|get_", function) and re.search(r"\blen\(|num_|size", text)
            if drawn and call.each_step and rows:
                yield Finding(
                    f"`{text[:60]}` draws the rows of a step, and every process begins from the same seed"
                    f" (`{seeds[0].strip()}`): all ranks train on the same rows.",
                    place=call.place,
                    evidence=Evidence(Level.TEXT, {"drawn by": call.name, "seed": seeds[0]}),
                    stake=Stake(AtStake.RESULT),
                    remedy=Remedy(
                        Risk.BEHAVIOURAL,
                        "Add the rank to the seed of what draws rows, once the weights are made.",
                        accuracy="A step holds as many different rows as was meant.",
                        measure="Print the first row's place on each rank.",
                    ),
                    also=(loop.place,),
                )
                return


_LOOP = """import torch
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

torch.distributed.init_process_group("nccl")
model = DDP(model.cuda())
loader = DataLoader(rows, batch_size=4, %s)
for batch in loader:
    model(**batch).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
RULE = Rule(
    code="DST057",
    name="same-rows-on-every-rank",
    summary="Every process of a distributed run goes over all rows.",
    group=Group.CORRECTNESS,
    subject=Subject.SCRIPT,
    check=check,
    page=Page(
        what="A plain `DataLoader` knows nothing of other processes.",
        why="More GPUs then make no run shorter: each sees every row, and with equal seeds all see the same batch"
        " at once.",
        detected="E0: a model that is wrapped for several processes, a training loop over a plain loader, and no"
        " word of a"
        " sampler, a shard, a rank in an index or a seed, or a library that divides.",
        proven="Print the first row's id on each rank.",
        deliberate=("The data set divides itself, in code that was not read.",),
        sources=("PyTorch's documentation of `DistributedSampler`",),
    ),
    bad=Example(
        {"train.py": (_LOOP % "shuffle=True").replace(", DistributedSampler", "")}, says="no distributed sampler"
    ),
    good=Example({"train.py": _LOOP % "sampler=DistributedSampler(rows)"}),
)

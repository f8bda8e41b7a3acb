"""DST057: every rank goes over all rows, since nothing divides them."""

import re
from collections.abc import Iterator

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import loops
from dynotune.audit.facts.together import code, together
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

_WRAPPED = re.compile(r"DistributedDataParallel\(|\bDDP\(|FullyShardedDataParallel\(|\bFSDP\(|fully_shard\(")
_DIVIDED = re.compile(
    r"[sS]ampler|split_dataset_by_node|\.shard\(|shards?\b|get_worker_info|Iterable|Accelerator|\.prepare\(|deepspeed"
    r"|\[[^\]\n]{0,80}rank|%\s*\w*(world|ranks|num_processes)|seed\s*\+\s*\w*rank|seed\w*\([^)\n]{0,80}rank|islice|scatter"
    r"|tensor_parallel|device_mesh|DataLoaderDispatcher"
)


def check(script: Script, project: Project) -> Iterator[Said]:
    near = [code(one) for one in together(script, project)]
    if not any(_WRAPPED.search(text) for text in near) or any(_DIVIDED.search(text) for text in near):
        return
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

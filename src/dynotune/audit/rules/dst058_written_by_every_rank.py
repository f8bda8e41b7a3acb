"""DST058: every process writes the same file."""

import re
from collections.abc import Iterator

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Call, Script
from dynotune.audit.facts.steps import text_at
from dynotune.audit.facts.together import code, together
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

_WRAPPED = re.compile(r"DistributedDataParallel\(|\bDDP\(")
_ALL_RANKS = re.compile(r"FSDP|fully_shard|FullySharded|deepspeed|distributed\.checkpoint|\bdcp\.|Accelerator|xla")
_RANK = re.compile(r"rank|main|master|chief|primary|leader|is_zero|world_size", re.IGNORECASE)
_LEAVES = re.compile(r"if[^\n]*(rank|main|master)[^\n]*:\s*(#[^\n]*)?\n?\s*return", re.IGNORECASE)


def check(script: Script, project: Project) -> Iterator[Said]:
    near = together(script, project)
    texts = [code(one) for one in near]
    if not _WRAPPED.search(code(script)) or any(_ALL_RANKS.search(text) for text in texts):
        return
    for call in script.calls:
        last = call.name.rpartition(".")[2]
        if call.name != "torch.save" and not (last == "save_pretrained" and "tokenizer" not in call.on):
            continue
        if _is_guarded(call) or _RANK.search(text_at(script, call.place)) or _is_guarded_outside(call, script):
            continue
        yield Finding(
            f"Every process runs `{'torch.save' if last == 'save' else f'{call.on}.{last}'}(...)` to the same path"
            f" at once:"
            " the file may be torn, and the others overwrite the first.",
            place=call.place,
            evidence=Evidence(Level.TEXT, {"guarded": False}),
            stake=Stake(AtStake.LOST),
            remedy=Remedy(
                Risk.SAFE,
                "Save under `if rank == 0:`, and let the others wait at a barrier.",
                measure="Load the file once while the run goes on.",
            ),
        )
        return


def _is_guarded(call: Call) -> bool:
    return any(one.kind == "if" and _RANK.search(one.name) for one in call.around)


def _is_guarded_outside(call: Call, script: Script) -> bool:
    """The function that it stands in is called, or goes on, on one rank alone."""
    function = next((one.name for one in reversed(call.around) if one.kind == "function"), "")
    if not function:
        return False
    if _LEAVES.search(script.source.partition(f"def {function}(")[2].partition("\ndef ")[0]):
        return True
    return any(_is_guarded(one) for one in script.calls_of(function))


_LOOP = """import torch
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

torch.distributed.init_process_group("nccl")
rank = torch.distributed.get_rank()
model = DDP(model.cuda())
for batch in DataLoader(rows, batch_size=4, sampler=DistributedSampler(rows)):
    model(**batch).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
_SAVE = 'torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}, "last.pt")\n'
RULE = Rule(
    code="DST058",
    name="written-by-every-rank",
    summary="Every process of a distributed run writes the same checkpoint.",
    group=Group.OPERATION,
    subject=Subject.SCRIPT,
    check=check,
    page=Page(
        what="Under `DistributedDataParallel` all processes hold the same weights and run the same script.",
        why="N processes open one path for writing: what is read later is whatever was written last, or parts of"
        " several.",
        detected="E0: `torch.save` or `save_pretrained` in a file that wraps its model in DDP, under no condition that"
        " speaks of a rank, in no function that is called on one alone, and to a path without a rank in it. Not"
        " said of FSDP,"
        " DeepSpeed and accelerate, where all take part.",
        proven="Count the writers: `lsof last.pt` while it saves.",
        deliberate=("Each process has a disk of its own.",),
        sources=("PyTorch's tutorial of DDP: save and load checkpoints",),
    ),
    bad=Example({"train.py": f"{_LOOP}{_SAVE}"}, says="Every process runs"),
    good=Example({"train.py": f"{_LOOP}if rank == 0:\n    {_SAVE}"}),
)

"""HST005: rows are tokenised between steps, by the process that drives the device."""

import re
from collections.abc import Iterator, Mapping, Sequence

from dynotune.audit.facts.asked import number, on_gpu
from dynotune.audit.facts.job import Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.row_work import (
    called,
    decodes,
    heavy_calls,
    heavy_functions,
    work_of,
    work_of_loop,
    work_of_trainer,
)
from dynotune.audit.facts.script import Call, Script
from dynotune.audit.facts.steps import on_device, text_at
from dynotune.audit.facts.together import together
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Example, Group, Page, Rule, Subject


def check(script: Script, project: Project) -> Iterator[Said]:
    if (own := work_of_loop(script)) is not None and on_device(script):
        yield _in_the_loop(own)
    if not any(call.name.endswith(("DataLoader", "Trainer")) for call in script.calls):
        return
    near = [one for one in together(script, project) if one is not script]
    helpers = {name: work for one in near for name, work in heavy_functions(one).items()}
    heavy = {
        **{name: work for one in near for name, work in heavy_calls(one, [script], helpers).items()},
        **heavy_calls(script, (), helpers),
    }
    yield from _by_a_loader(script, near, heavy)
    yield from _by_a_trainer(script, project, near, heavy)


def _by_a_trainer(
    script: Script, project: Project, near: Sequence[Script], heavy: Mapping[str, Call]
) -> Iterator[Said]:
    """A trainer's own loader, whose workers are a setting of the job."""
    for job in project.jobs:
        if script.file not in job.files or number(job, "dataloader_num_workers") != 0:
            continue
        if job.trainer is Trainer.DYNOTUNE or not on_gpu(job):
            continue
        for call in script.calls:
            work = work_of_trainer(script, call, heavy, near)
            if work is not None:
                key = job.called("dataloader_num_workers")
                setting = job.setting("dataloader_num_workers")
                yield Finding(
                    _message(work, "row", f"`{key}` is 0"),
                    place=job.place("dataloader_num_workers"),
                    evidence=Evidence(Level.RESOLVED, {"num_workers": 0, "work": work.name}),
                    stake=_STAKE,
                    remedy=Remedy(
                        Risk.SAFE,
                        f"Set `{key}` to 4 or more."
                        if decodes(work)
                        else f"Tokenise once before training; or set `{key}` to 2 to 4.",
                        (job.set("dataloader_num_workers", 2),) if job.is_given("dataloader_num_workers") else (),
                        measure="dynotune profile -- python train.py",
                    ),
                    also=(work.place, *(setting.via if setting else ())),
                )
                return


def _by_a_loader(script: Script, near: Sequence[Script], heavy: Mapping[str, Call]) -> Iterator[Said]:
    lines: set[int] = set()
    for loader in script.calls:
        if not loader.name.endswith(_LOADERS) or "**" in loader.arguments or loader.place.line in lines:
            continue
        if _OTHERS.search(loader.result) or _OF_OTHERS.match(text_at(script, loader.place)):
            continue
        workers = loader.arguments.get("num_workers")
        if workers is not None and workers.value != 0 and workers.value != 1:
            continue
        work = work_of(script, loader, heavy, near)
        if work is None:
            continue
        by_flag = workers is not None and any(place.key.startswith("-") for place in workers.via)
        if workers is not None and workers.value == 1 and (by_flag or not decodes(work)):
            continue
        lines.add(loader.place.line)
        count = int(workers.value) if workers is not None else 0
        yield Finding(
            _one_worker(work)
            if count
            else _message(work, "batch", f"`num_workers` is {'0' if workers is not None else 'left at 0'}"),
            place=workers.place if workers is not None and workers.place.file == script.file else loader.place,
            evidence=Evidence(Level.TEXT, {"num_workers": count, "work": work.name}),
            stake=_STAKE,
            remedy=Remedy(
                Risk.SAFE,
                "Set `num_workers` to the cores that each process has, with `persistent_workers=True`."
                if decodes(work)
                else "Tokenise once before training; or set `num_workers` to 2 to 4 with `persistent_workers=True`.",
                breaks="Workers copy what the data set holds in memory."
                if decodes(work)
                else "Workers copy what the data set holds in memory; a tokenizer in workers wants"
                " `TOKENIZERS_PARALLELISM=false`.",
                measure="dynotune profile -- python train.py",
            ),
            also=(work.place, loader.place) if work.place.file == script.file else (loader.place,),
        )


_LOADERS = ("torch.utils.data.DataLoader", "torch.utils.data.dataloader.DataLoader")
_OTHERS = re.compile(r"eval|valid|^val|_val|test|dev_|infer|pred", re.IGNORECASE)
_OF_OTHERS = re.compile(r"[\w.]*DataLoader\(\s*(?:dataset\s*=\s*)?[\w.]*(?:eval|val|test|dev)\w*[,\s(]", re.IGNORECASE)
"""Loaders that do not train."""

_STAKE = Stake(AtStake.TIME, 0.0, 0.3, "milliseconds a row on one core, against the time of a step")


def _in_the_loop(work: Call) -> Finding:
    return Finding(
        f"`{called(work)}(...)` stands in the training loop itself: each batch is tokenised between two steps, in the"
        " process that drives the device, which waits meanwhile.",
        place=work.place,
        evidence=Evidence(Level.TEXT, {"work": work.name}),
        stake=_STAKE,
        remedy=Remedy(
            Risk.SAFE,
            "Tokenise once before training with `Dataset.map`, and pad in the loader's `collate_fn`.",
            measure="dynotune profile -- python train.py",
        ),
    )


def _message(work: Call, unit: str, workers: str) -> str:
    what = (
        f"`{called(work)}(...)` opens and decodes files for every {unit}"
        if decodes(work)
        else f"`{called(work)}(...)` runs for every {unit}"
    )
    return f"{what} in the process that drives the device ({workers}): the device waits meanwhile."


def _one_worker(work: Call) -> str:
    return f"One loader worker opens and decodes all files (`{called(work)}(...)`): the device waits for it."


_DATA = """from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __init__(self, rows, tokenizer):
        self.rows, self.tokenizer = rows, tokenizer

    def __getitem__(self, index):
        return self.tokenizer(self.rows[index]["text"], truncation=True, return_tensors="pt")


data = Rows(rows, tokenizer)
"""
RULE = Rule(
    code="HST005",
    name="collating-in-the-main-process",
    summary="Rows are tokenised or decoded between steps, without workers.",
    group=Group.PERFORMANCE,
    subject=Subject.SCRIPT,
    check=check,
    page=Page(
        what="A `DataLoader` without workers makes each batch in the training process, between two steps.",
        why="Tokenising a row takes up to a millisecond, opening an image more. A batch of them is a gap in every"
        " step.",
        detected="E0: a tokenizer, a processor or a decoder is called in `__getitem__` or what that calls, in a"
        " generator or in the collator of a loader whose `num_workers` is 0, in the same file or one that it works with, or"
        " a data set of torchvision's does so; with one worker, where images or sounds are decoded."
        " Data that lies in memory as tensors needs no workers, and is not reported.",
        proven="`dynotune profile -- python train.py` shows the time that steps wait for data.",
        deliberate=(
            "Steps are so long that the gap cannot be seen.",
            "Workers are harmful on WSL and in small containers.",
        ),
        sources=("PyTorch's documentation of `torch.utils.data`, single- and multi-process loading",),
    ),
    bad=Example({"train.py": f"{_DATA}loader = DataLoader(data, batch_size=8, shuffle=True)\n"}, says="tokenizer"),
    good=Example({"train.py": f"{_DATA}loader = DataLoader(data, batch_size=8, shuffle=True, num_workers=4)\n"}),
)

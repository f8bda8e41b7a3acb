"""HST005: rows are tokenised between steps, by the process that drives the device."""

from collections.abc import Iterator, Mapping

from dynotune.audit.facts.asked import number, on_gpu
from dynotune.audit.facts.job import Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.row_work import called, heavy_calls, work_of, work_of_trainer
from dynotune.audit.facts.script import Call, Script
from dynotune.audit.facts.together import imported
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Example, Group, Page, Rule, Subject


def check(script: Script, project: Project) -> Iterator[Said]:
    if not any(call.name.endswith(("DataLoader", "Trainer")) for call in script.calls):
        return
    heavy = {
        **{name: work for one in imported(script, project) for name, work in heavy_calls(one, [script]).items()},
        **heavy_calls(script),
    }
    yield from _by_a_loader(script, heavy)
    yield from _by_a_trainer(script, project, heavy)


def _by_a_trainer(script: Script, project: Project, heavy: Mapping[str, Call]) -> Iterator[Said]:
    """A trainer's own loader, whose workers are a setting of the job."""
    for job in project.jobs:
        if script.file not in job.files or number(job, "dataloader_num_workers") != 0:
            continue
        if job.trainer is Trainer.DYNOTUNE or not on_gpu(job):
            continue
        for call in script.calls:
            work = work_of_trainer(script, call, heavy)
            if work is not None:
                key = job.called("dataloader_num_workers")
                setting = job.setting("dataloader_num_workers")
                yield Finding(
                    f"`{called(work)}(...)` runs for every row in the process that drives the device (`{key}` is 0): the"
                    " device waits meanwhile.",
                    place=job.place("dataloader_num_workers"),
                    evidence=Evidence(Level.RESOLVED, {"num_workers": 0, "work": work.name}),
                    stake=Stake(AtStake.TIME, 0.0, 0.3, "milliseconds a row on one core, against the time of a step"),
                    remedy=Remedy(
                        Risk.SAFE,
                        f"Tokenise once before training; or set `{key}` to 2 to 4.",
                        (job.set("dataloader_num_workers", 2),) if job.is_given("dataloader_num_workers") else (),
                        measure="dynotune profile -- python train.py",
                    ),
                    also=(work.place, *(setting.via if setting else ())),
                )
                return


def _by_a_loader(script: Script, heavy: Mapping[str, Call]) -> Iterator[Said]:
    for loader in script.calls:
        if loader.name != "torch.utils.data.DataLoader" or "**" in loader.arguments:
            continue
        workers = loader.arguments.get("num_workers")
        if workers is not None and workers.value != 0:
            continue
        work = work_of(script, loader, heavy)
        if work is None:
            continue
        yield Finding(
            f"`{called(work)}(...)` runs for every batch in the process that drives the device (`num_workers` is"
            f" {'0' if workers is not None else 'left at 0'}): the device waits meanwhile.",
            place=workers.place if workers is not None else loader.place,
            evidence=Evidence(Level.TEXT, {"num_workers": 0, "work": work.name}),
            stake=Stake(AtStake.TIME, 0.0, 0.3, "milliseconds a row on one core, against the time of a step"),
            remedy=Remedy(
                Risk.SAFE,
                "Tokenise once before training; or set `num_workers` to 2 to 4 with `persistent_workers=True`.",
                breaks="Workers copy what the data set holds in memory; a tokenizer in workers wants"
                " `TOKENIZERS_PARALLELISM=false`.",
                measure="dynotune profile -- python train.py",
            ),
            also=(work.place,),
        )


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
        " generator or in the collator of a loader whose `num_workers` is 0, in the same file or one that it imports from."
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

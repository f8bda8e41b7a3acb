"""Rows are tokenised whenever they are asked for, so once in each of several epochs."""

import re
from collections.abc import Iterator

from dynotune.audit.facts.asked import number, on_gpu
from dynotune.audit.facts.job import Job
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.row_work import called, heavy_calls, work_of, work_of_trainer
from dynotune.audit.facts.script import Call, Script
from dynotune.audit.facts.together import imported
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake

_ANEW = re.compile(
    r"\brandom\b|\brand\w*\(|\bchoices?\(|\brng\b|augment|dropout|perturb|\bmask_prob|shuffle", re.IGNORECASE
)
"""Words of what makes another row of the same text each time."""

_KEEPS = re.compile(r"cache|memo|save_to_disk|memmap|torch\.load|load_from_disk")
_NO_TEXT = re.compile(r"processor|image|audio|PIL|feature_extractor", re.IGNORECASE)
_EACH_ROW = frozenset({"__getitem__", "__getitems__"})
_NOT_TRAINING = re.compile(r"eval|valid|test|dev_", re.IGNORECASE)


def tokenised_each_epoch(script: Script, project: Project) -> Iterator[Said]:
    """Whatever the number of workers: where there are none, HST005 says it."""
    if not any(call.name.endswith(("DataLoader", "Trainer")) for call in script.calls):
        return
    jobs = [job for job in project.jobs if script.file in job.files and on_gpu(job)]
    told = [(number(job, "num_train_epochs") or 0, job) for job in jobs if (number(job, "max_steps") or -1) <= 0]
    if not told or len(told) < len(jobs) or min(epochs for epochs, _ in told) < 2:
        return
    epochs, job = min(told, key=lambda one: one[0])
    homes = [*imported(script, project), script]
    heavy = {name: (work, one) for one in homes for name, work in heavy_calls(one).items()}
    works = {name: work for name, (work, _) in heavy.items()}
    for call in script.calls:
        work = _work(script, call, works, job)
        home = next((one for found, one in heavy.values() if found is work), None)
        if work is None or home is None or not _same_each_time(work, home):
            continue
        yield Finding(
            f"`{called(work)}(...)` runs for every row whenever it is asked for: all rows are tokenised again in each of"
            f" {epochs:g} epochs, and at every start.",
            place=work.place,
            also=(call.place,),
            evidence=Evidence(Level.RESOLVED, {"epochs": epochs, "work": work.name}),
            stake=Stake(AtStake.TIME, 0.0, None),
            remedy=Remedy(
                Risk.SAFE,
                "Tokenise once: `Dataset.map` of `datasets` keeps what it makes on disk, for all epochs and starts.",
                effort=Effort.MINUTES,
                measure="dynotune profile -- python train.py",
            ),
        )
        return


def _work(script: Script, call: Call, works: dict[str, Call], job: Job) -> Call | None:
    """What a loader's or a trainer's data set does for each row. Without workers it is another rule's."""
    if call.name == "torch.utils.data.DataLoader":
        workers = call.arguments.get("num_workers")
        if workers is None or workers.value == 0 or _NOT_TRAINING.search(call.result):
            return None
        return work_of(script, call, works)
    if number(job, "dataloader_num_workers") == 0:
        return None
    return work_of_trainer(script, call, works)


def _same_each_time(work: Call, home: Script) -> bool:
    """Text, made to the same tokens each time, by a data set and no collator, and not kept anywhere."""
    functions = [around.name for around in work.around if around.kind == "function"]
    holder = next((around.name for around in work.around if around.kind == "class"), "")
    turned = re.search(rf"_transform\(\s*(?:functools\.)?(?:partial\(\s*)?{re.escape(functions[-1])}\b", home.source)
    if not (holder and _EACH_ROW & set(_methods(home, holder)) and "__call__" not in functions) and not turned:
        return False
    inside = _source(home, holder or functions[0])
    return not (_ANEW.search(inside) or _KEEPS.search(inside) or _NO_TEXT.search(inside) or "__iter__" in functions)


def _methods(home: Script, name: str) -> list[str]:
    return re.findall(r"def (\w+)\(", _source(home, name))


def _source(home: Script, name: str) -> str:
    """Of a class or a function of the file."""
    found = re.search(
        rf"^([ \t]*)(?:class|def) {re.escape(name)}\b.*?(?=^\1\S(?<![)\]}}])|\Z)", home.source, re.MULTILINE | re.DOTALL
    )
    return found[0] if found is not None else home.source

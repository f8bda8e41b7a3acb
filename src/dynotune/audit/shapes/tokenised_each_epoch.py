"""Rows are tokenised whenever they are asked for, so once in each of several epochs."""

import re
from collections.abc import Iterator, Sequence

from dynotune.audit.facts.asked import number, on_gpu
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.row_work import (
    called,
    decodes,
    heavy_calls,
    heavy_functions,
    is_heavy,
    last,
    work_of,
    work_of_loop,
    work_of_trainer,
)
from dynotune.audit.facts.script import Call, Script
from dynotune.audit.facts.steps import text_at
from dynotune.audit.facts.together import together
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake

_ANEW = re.compile(
    r"\brandom\b|\brand\w*\(|\bchoices?\(|\brng\b|augment|dropout|perturb|\bmask_prob|shuffle", re.IGNORECASE
)
"""Words of what makes another row of the same text each time."""

_KEEPS = re.compile(r"cache|memo|save_to_disk|memmap|torch\.load|load_from_disk")
_ON_PURPOSE = re.compile(
    r"\b(on[- ]the[- ]fly|lazily|lazy|one \w+ at a time|too (big|large)|does(n't| not) fit|full set|\d+ ?[GT]i?B)\b",
    re.IGNORECASE,
)
"""What a file says of rows that are not prepared beforehand for a reason."""

_NO_TEXT = re.compile(r"processor|image|audio|PIL|feature_extractor", re.IGNORECASE)
_NOT_TRAINING = re.compile(r"eval|valid|test|dev_", re.IGNORECASE)


def tokenised_each_epoch(script: Script, project: Project) -> Iterator[Said]:
    """Whatever the number of workers; that the device waits where there are none is HST005's."""
    in_loop = work_of_loop(script)
    if in_loop is None and not any(call.name.endswith(("DataLoader", "Trainer")) for call in script.calls):
        return
    jobs = [job for job in project.jobs if script.file in job.files and on_gpu(job)]
    told = [(number(job, "num_train_epochs") or 0, job) for job in jobs if (number(job, "max_steps") or -1) <= 0]
    if not told or len(told) < len(jobs) or min(epochs for epochs, _ in told) < 2:
        return
    epochs = min(epochs for epochs, _ in told)
    if in_loop is not None:
        if not _ANEW.search(text_at(script, in_loop.loop) if in_loop.loop else ""):
            yield _finding(in_loop, in_loop, epochs)
        return
    near = together(script, project)
    helpers = {name: work for one in near for name, work in heavy_functions(one).items()}
    works = {name: work for one in near for name, work in heavy_calls(one, [script], helpers).items()}
    for call in script.calls:
        work = _work(script, call, works, near) or _by_a_transform(script, call, works)
        home = next((one for one in near if work is not None and one.file == work.place.file), None)
        if work is None or home is None or not _same_each_time(work, home):
            continue
        yield _finding(work, call, epochs)
        return


def _finding(work: Call, user: Call, epochs: float) -> Finding:
    return Finding(
        f"`{called(work)}(...)` runs for every row whenever it is asked for: all rows are tokenised again in each of"
        f" {epochs:g} epochs, and at every start.",
        place=work.place,
        also=(user.place,),
        evidence=Evidence(Level.RESOLVED, {"epochs": epochs, "work": work.name}),
        stake=Stake(AtStake.TIME, 0.0, None),
        remedy=Remedy(
            Risk.SAFE,
            "Tokenise once: `Dataset.map` of `datasets` keeps what it makes on disk, for all epochs and starts.",
            effort=Effort.MINUTES,
            measure="dynotune profile -- python train.py",
        ),
    )


def _work(script: Script, call: Call, works: dict[str, Call], near: Sequence[Script]) -> Call | None:
    """What a loader's or a trainer's data set or collator does for each row."""
    others = [one for one in near if one is not script]
    if call.name == "torch.utils.data.DataLoader":
        return None if _NOT_TRAINING.search(call.result) else work_of(script, call, works, others)
    return work_of_trainer(script, call, works, others)


def _by_a_transform(script: Script, call: Call, works: dict[str, Call]) -> Call | None:
    """`rows.set_transform(lambda batch: tok(batch["text"]))`, or the name of a function that does so."""
    if last(call.name) not in ("set_transform", "with_transform") or _NOT_TRAINING.search(call.on or call.result):
        return None
    name = re.search(r"_transform\(\s*(?:partial\(|functools\.partial\()?(\w+)", text_at(script, call.place))
    if name is not None and name[1] in works:
        return works[name[1]]
    lines = range(call.place.line, call.place.end_line + 1)
    made = [one for one in script.calls if one.place.line in lines and one is not call and is_heavy(one, script)]
    return made[0] if made and "lambda" in text_at(script, call.place) else None


def _same_each_time(work: Call, home: Script) -> bool:
    """Text, made to the same tokens each time, and not kept anywhere."""
    functions = [around.name for around in work.around if around.kind == "function"]
    holder = next((around.name for around in work.around if around.kind == "class"), "")
    if decodes(work):
        return False
    line = home.source.split("\n")[work.place.line - 1 : work.place.end_line]
    inside = _source(home, holder or functions[0]) if functions else "\n".join(line)
    if _ON_PURPOSE.search(inside):
        return False
    return not (_ANEW.search(inside) or _KEEPS.search(inside) or _NO_TEXT.search(inside) or "__iter__" in functions)


def _source(home: Script, name: str) -> str:
    """Of a class or a function of the file."""
    found = re.search(
        rf"^([ \t]*)(?:class|def) {re.escape(name)}\b.*?(?=^\1\S(?<![)\]}}])|\Z)", home.source, re.MULTILINE | re.DOTALL
    )
    return found[0] if found is not None else home.source

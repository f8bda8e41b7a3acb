"""HST051: loader workers that this machine has no cores for, or that WSL slows down."""

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from dynotune.audit.facts.asked import number, on_gpu
from dynotune.audit.facts.cards import CARD
from dynotune.audit.facts.environment import Environment
from dynotune.audit.facts.job import Job
from dynotune.audit.facts.loaded_data import argument, makers
from dynotune.audit.facts.of_its_class import of_its_class
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.rooms import own_nodes
from dynotune.audit.facts.script import Call, Script
from dynotune.audit.facts.setting import Setting
from dynotune.audit.facts.steps import text_at
from dynotune.audit.facts.together import connected, imported
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, NotChecked, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.read.launchers.slurm import directives
from dynotune.audit.rule import NONE_OF, Example, Group, Page, Rule, Subject

_WSL = re.compile(r"/usr/lib/wsl|\bwsl(\.exe)?\b[^\n]{0,20}\s-d\b|WSL_DISTRO_NAME|\bcd /mnt/[a-z]/")


MANY = 4
"""Loader workers from which on it is said that rows which lie in memory need none; two or so are a habit."""


MANY_TO_PAD = 8
"""The same where a collator pads them, which is little work for one process."""


def check(project: Project, _: Project) -> Iterator[Said]:
    for script in project.scripts:
        yield from _in_memory(script, project)
    for job in project.jobs:
        yield from _of_a_trainer(job, project)
    if project.environment is not None:
        yield from _on_this_machine(project.environment, project)
        return
    yield NotChecked(NONE_OF[Subject.ENVIRONMENT])
    for job in project.jobs:
        workers = number(job, "dataloader_num_workers")
        starts = [launch.file for launch in project.launches if set(job.files) & {launch.file, launch.script}]
        under = any(_WSL.search(project.texts.get(file, "")) for file in starts) or (
            workers is not None and workers >= MANY and _says_wsl(job, project)
        )
        if under and workers and job.is_given("dataloader_num_workers") and on_gpu(job):
            yield _wsl(job, int(workers), Level.TEXT)
        else:
            yield from _more_than_said(job, project)


_OWN_CARD = re.compile(
    rf"{CARD.pattern}|\b(?:RTX|GTX) ?\d{{3,4}}|\bGeForce\b"
    r"|\b(?:I|we|my|our)\b[^.;]{0,60}\b(?:on|under|in|inside|within|via|through|runs?|running|uses?|using|is|has)\b"
    r"[^.;]{0,30}\bWSL|\bWSL[^.;]{0,30}\b(?:on|of) (?:my|our)\b",
    re.IGNORECASE,
)
"""The card, or whose machine it is: the sentence speaks of where this runs."""

_MACHINE = re.compile(r"\bWSL ?2?\b")
_PERHAPS = re.compile(
    r"\b(?:if|or|not|unless|also|should|may|can|untested|support\w*|report\w*|users?|see|guide|blog)\b|n't\b",
    re.IGNORECASE,
)
_TESTED = re.compile(r"\btested\b", re.IGNORECASE)
_ELSEWHERE = re.compile(
    r"\b(?:linux|mac ?os|osx|native\w*|a100s?|h100s?|cluster|cloud|colab|and (?:on )?wsl\w*)\b", re.IGNORECASE
)
"""What a sentence names beside WSL that was tested on both."""


_CORES = re.compile(r"(?<![\d.,-])(\d{1,3}) ?(?:v?CPU |CPU-)?(?:cores?\b(?! hours?)|v?CPUs\b)", re.IGNORECASE)


def _cores_said(job: Job, project: Project) -> int | None:
    """Cores of the machine, where the project's documents, a notebook's text or comments of launchers name one number."""
    own = {*job.files, *(one.file for one in project.launches if set(job.files) & {one.file, one.script})}
    texts = [*project.documents.values(), *(project.notes.get(file, "") for file in own)]
    comments = [re.findall(r"#.*", project.texts.get(file, "")) for file in own if not file.endswith((".yaml", ".yml"))]
    texts += [line for lines in comments for line in lines]
    told = {int(found[1]) for text in texts for found in _CORES.finditer(text)}
    return told.pop() if len(told) == 1 else None


def _more_than_said(job: Job, project: Project) -> Iterator[Finding]:
    """Several times as many workers as the project says that there are cores, or as its job file asks for."""
    workers, cores, processes = number(job, "dataloader_num_workers"), _cores_said(job, project), 1
    if not workers or not job.is_given("dataloader_num_workers") or not on_gpu(job):
        return
    if (asked := _cores_of_slurm(job, project)) is not None:
        cores, processes = asked
    if cores and workers * processes >= 2 * cores:
        yield replace(
            _too_many(job, int(workers), processes, cores),
            evidence=Evidence(Level.TEXT, {"workers": workers, "processes": processes, "cores": cores}),
        )


def _cores_of_slurm(job: Job, project: Project) -> tuple[int, int] | None:
    """Cores of one task, and the processes that its launcher starts in it, where the only job file says how many."""
    files = {one.file for one in project.launches if set(job.files) & {one.file, one.script, *one.configs}}
    texts = [text for file in files if "#SBATCH" in (text := project.texts.get(file, ""))]
    if len(texts) != 1 or len(files) != 1:
        return None
    asked = directives(texts[0])
    each = next((asked[name][0] for name in ("--cpus-per-task", "-c") if name in asked), "")
    tasks = [asked[name][0] for name in ("--ntasks-per-node", "--ntasks", "-n") if name in asked]
    if not each.isdigit() or any(one != "1" for one in tasks) or "--cpus-per-gpu" in asked:
        return None
    nodes = asked.get("--nodes", ("1", 0))[0]
    ranks = number(job, "num_processes") or 1
    if not nodes.isdigit() or int(nodes) < 1:
        return None
    return int(each), max(1, int(ranks) // int(nodes))


def _says_wsl(job: Job, project: Project) -> bool:
    """A document, a notebook's text or a comment of the job's scripts and launchers names it in the sentence that names the
    GPU."""
    own = {*job.files, *(one.file for one in project.launches if set(job.files) & {one.file, one.script})}
    comments = ["\n\n".join(re.findall(r"^\s*#.*|\s#\s.*", project.texts.get(file, ""), re.MULTILINE)) for file in own]
    for text in (*project.documents.values(), *(project.notes.get(file, "") for file in own), *comments):
        for sentence in re.split(r"(?<=[.;!?])\s|\n\s*\n", text):
            if not _MACHINE.search(sentence) or not _OWN_CARD.search(sentence) or _PERHAPS.search(sentence):
                continue
            if not _TESTED.search(sentence) or not _ELSEWHERE.search(sentence):
                return True
    return False


def _in_memory(script: Script, project: Project) -> Iterator[Finding]:
    """Many workers for tensors that need nothing done: a `TensorDataset`, or a class whose rows are made already."""
    for call in script.calls_of("DataLoader"):
        workers, collate = call.arguments.get("num_workers"), call.arguments.get("collate_fn")
        if workers is not None and not workers.is_known:
            workers = of_its_class(script, call, "num_workers", connected(script, project)) or workers
        if workers is None or not isinstance(workers.value, int) or workers.value < (MANY_TO_PAD if collate else MANY):
            continue
        if collate is not None and not _pads_in_a_lambda(script, call) and not _only_pads(script, project):
            continue
        first = re.match(r"[\w.]*DataLoader\(\s*(?:dataset\s*=\s*)?([\w.]+)(\()?", text_at(script, call.place))
        made = first[1] if first and first[2] else ""  # made in the call itself
        made = made or next((one.name for one in script.calls if first and one.result == first[1]), "")
        near = (script, *imported(script, project))
        last = made.rpartition(".")[2] or _followed(script, call, near)
        if last == "TensorDataset" or _hands_over(last, near) or _gives_tensors(last, near):
            yield _useless(workers.value, last, _told(workers, script, call), "num_workers=0", (call.place,))


def _followed(script: Script, call: Call, near: Sequence[Script]) -> str:
    """The only class of the program's own that what a loader gets may be made by, also in who calls the function that it
    stands in."""
    given = argument(script, call, "dataset", position=0)
    room = next((one.name for one in reversed(call.around) if one.kind == "function"), "")
    names = makers(given, script, near, room) if isinstance(given, ast.Name) else set()
    own = {one for one in names if one == "TensorDataset" or any(f"class {one}(" in held.source for held in near)}
    return own.pop() if len(own) == 1 and not names & _OTHERS else ""


_OTHERS = frozenset({"ConcatDataset", "load_dataset", "load_from_disk"})
"""What may bring rows that lie elsewhere."""


def _told(workers: Setting, script: Script, call: Call) -> Place:
    """Where the number stands: in the file of the loader, or where the class that has it is made."""
    return workers.place if workers.place.file == script.file or not workers.name else call.place


def _useless(workers: int, data: str, place: Place, instead: str, also: tuple[Place, ...] = ()) -> Finding:
    return Finding(
        f"{workers} loader workers for rows that lie in memory as they are needed: they do nothing but copy"
        " each batch through shared memory, and start anew each epoch.",
        place=place,
        evidence=Evidence(Level.TEXT, {"workers": workers, "data": data}),
        stake=Stake(AtStake.TIME, 0.0, None),
        remedy=Remedy(Risk.SAFE, f"Set `{instead}`.", measure="dynotune profile -- python train.py"),
        also=tuple(one for one in also if one != place),
    )


_WORKS = re.compile(
    r"\btok\w*\(|tokenizer\(|\.encode\(|encode_plus|processor\(|Image\.|open\(|torch\.load|np\.load|decode|augment|random|resample"
    r"|tokenizer\.pad\(|apply_chat_template"
)
"""What a collator or `__getitem__` may do that workers are for."""


def _only_pads(script: Script, project: Project) -> bool:
    """Every collator of the script's files is a class or function of theirs that makes tensors and nothing else."""
    near = (script, *imported(script, project))
    found = [
        node
        for one in near
        for node in ast.walk(one.tree)
        if isinstance(node, ast.FunctionDef) and re.search(r"__call__|collate", node.name)
    ]
    return bool(found) and not any(_WORKS.search(ast.unparse(node)) for node in found)


def _pads_in_a_lambda(script: Script, call: Call) -> bool:
    """`collate_fn=lambda rows: pad_sequence(rows, batch_first=True)`."""
    given = argument(script, call, "collate_fn")
    return isinstance(given, ast.Lambda) and not _WORKS.search(ast.unparse(given))


def _of_a_trainer(job: Job, project: Project) -> Iterator[Finding]:
    """The same of a `Trainer`, whose set is an object of a class that hands over rows which were made when it was."""
    workers = number(job, "dataloader_num_workers")
    if workers is None or workers < MANY_TO_PAD or not job.is_given("dataloader_num_workers") or not on_gpu(job):
        return
    for script in [one for one in project.scripts if one.file in job.files]:
        near = (script, *imported(script, project))
        given = [ast.unparse(node.value) for one in near for node in ast.walk(one.tree)
                 if isinstance(node, ast.keyword) and node.arg == "train_dataset"]  # fmt: skip
        made = {call.result: call.name.rpartition(".")[2] for call in script.calls if call.result}
        names = {made.get(one, one.partition("(")[0]).rpartition(".")[2] for one in given}
        plain = not any("collat" in one.source for one in near)  # the trainer's own, which only stacks
        if len(names) == 1 and _hands_over(name := names.pop(), near) and (plain or _only_pads(script, project)):
            instead = f"{job.called('dataloader_num_workers')}: 0"
            yield _useless(int(workers), name, job.place("dataloader_num_workers"), instead)
            return


_TENSORS = re.compile(r"^(?:torch\.(?:tensor|as_tensor|from_numpy|LongTensor)|dict|len|int|list)$")
"""What `__getitem__` may call, and has still nothing to do."""


_RESHAPED = re.compile(
    r"\.(?:long|int|float|to|type|astype|clone|copy|contiguous|narrow|view|reshape|squeeze|unsqueeze|size)$"
)
"""What `__getitem__` may call of a slice."""

_HELD = re.compile(
    r"\bself\.\w+(?:, self\.\w+)*\)? = [^\n]*\b(?:np\.(?:fromfile|array|concatenate|asarray|load|frombuffer)"
    r"|torch\.(?:load|cat|stack|tensor|from_numpy|frombuffer))\("
)
"""A class reads its rows, all of them, when an object is made."""


def _gives_tensors(name: str, scripts: Sequence[Script]) -> bool:
    """A function that returns a `TensorDataset`, in each of its returns."""
    for script in scripts:
        for node in ast.walk(script.tree) if name and f"def {name}" in script.source else ():
            if not isinstance(node, ast.FunctionDef) or node.name != name:
                continue
            made = {
                one.targets[0].id
                for one in own_nodes(node)
                if isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Name) and _is_made(one.value)
            }
            given = [one.value for one in own_nodes(node) if isinstance(one, ast.Return)]
            return bool(given) and all(_is_made(one) or (isinstance(one, ast.Name) and one.id in made) for one in given)
    return False


def _is_made(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "TensorDataset"


def _hands_over(name: str, scripts: Sequence[Script]) -> bool:
    """A class whose `__getitem__` calls nothing, or cuts what the object has held since it was made."""
    for script in scripts:
        for node in ast.walk(script.tree) if name and f"class {name}" in script.source else ():
            if isinstance(node, ast.ClassDef) and node.name == name:
                gets = [one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__getitem__"]
                on_disk = re.search(r"memmap|mmap|h5py|lmdb|zarr|load_dataset|load_from_disk|pyarrow", script.source)
                called = [ast.unparse(one.func) for top in gets for one in ast.walk(top) if isinstance(one, ast.Call)]
                held = bool(_HELD.search(ast.unparse(node)))
                light = all(_TENSORS.match(one) or (held and _RESHAPED.search(one)) for one in called)
                return bool(gets) and not on_disk and light
    return False


def _on_this_machine(environment: Environment, project: Project) -> Iterator[Said]:
    cores = (environment.machine.get("cpu") or {}).get("cores")
    for job in project.jobs:
        workers, processes = number(job, "dataloader_num_workers"), number(job, "num_processes") or 1
        if not workers or not job.is_given("dataloader_num_workers"):
            continue
        if cores and workers * processes > cores:
            yield _too_many(job, int(workers), int(processes), int(cores))
        elif environment.wsl and on_gpu(job):
            yield _wsl(job, int(workers), Level.PROBED)


def _too_many(job: Job, workers: int, processes: int, cores: int) -> Finding:
    each = max(0, cores // processes - 1)
    of = f" of each of {processes} processes" if processes > 1 else ""
    return Finding(
        f"{workers} loader workers{of} share {cores} cores with the training: they take its time, and its launches"
        f" wait.",
        place=job.place("dataloader_num_workers"),
        evidence=Evidence(Level.PROBED, {"workers": workers, "processes": processes, "cores": cores}),
        stake=Stake(AtStake.TIME),
        remedy=Remedy(
            Risk.SAFE,
            f"Set `{job.called('dataloader_num_workers')}: {each}`.",
            (job.set("dataloader_num_workers", each),),
            measure="dynotune profile -- python train.py",
        ),
    )


def _wsl(job: Job, workers: int, level: Level) -> Finding:
    return Finding(
        f"{workers} loader workers under WSL: processes and shared memory are slow there, and tokenised text needs"
        f" little of"
        " either.",
        place=job.place("dataloader_num_workers"),
        evidence=Evidence(level, {"workers": workers, "WSL": True}),
        stake=Stake(AtStake.TIME, 0.0, None),
        remedy=Remedy(
            Risk.SAFE,
            f"Try `{job.called('dataloader_num_workers')}: 0`.",
            (job.set("dataloader_num_workers", 0),),
            measure="dynotune profile -- python train.py",
        ),
    )


_SFT = "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: data.jsonl\ndataloader_num_workers: "
_RUN = "cd {}\ntrl sft --config sft.yaml\n"
RULE = Rule(
    code="HST051",
    name="workers-and-cores",
    summary="Loader workers that the machine has no cores for, or that WSL slows down.",
    group=Group.PERFORMANCE,
    subject=Subject.PROJECT,
    check=check,
    page=Page(
        what="Each loader worker is a process. The training itself needs a core for launching kernels, and one for"
        " autograd.",
        why="Where workers take those, the GPU waits. Under WSL, starting processes and sharing memory cost much.",
        detected=f"E0: a launcher that names WSL's folders, or a document that names WSL with the"
        f" GPU ({MANY} workers or more); {MANY} workers or more for a `TensorDataset`, or for a class"
        " whose `__getitem__` does no more than make tensors, or slices of what the object read when it was made,"
        " without a"
        " collator;"
        f" {MANY_TO_PAD} or more where a collator of the program's own pads them."
        " E2, with `--env`: cores of this machine and whether it"
        " is WSL,"
        " against workers and processes; without it, where the project's documents or a launcher's comments name the"
        " number of cores, twice as many workers.",
        proven="`dynotune profile -- python train.py`: data wait, and gaps between kernels.",
        deliberate=("Workers that wait for a network most of the time.", "The training runs on another machine."),
        sources=("Records of runs that the project was made from",),
    ),
    bad=Example({"sft.yaml": f"{_SFT}8\n", "run.sh": _RUN.format("/mnt/c/sft")}, says="8 loader workers under WSL"),
    good=Example({"sft.yaml": f"{_SFT}8\n", "run.sh": _RUN.format("/srv/sft")}),
)

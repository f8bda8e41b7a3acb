"""HST006: data is prepared again at every start, since the cache is switched off or thrown away."""

import ast
import re
from collections.abc import Iterator
from dataclasses import replace

from dynotune.audit.change import Change, Edit
from dynotune.audit.facts.asked import given, on_gpu
from dynotune.audit.facts.job import Job, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.ranks import on_several
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.together import code, imported, together
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.rule import Example, Group, Page, Rule, Subject
from dynotune.audit.shapes.cache_that_goes_away import is_staged, of_containers, of_one_run
from dynotune.audit.shapes.tokenised_each_epoch import tokenised_each_epoch

TOKENS_A_SECOND = 0.25e6
"""What transformers-style preparation in one process does."""

SECONDS = 10
"""Less is not worth a word."""


def check(project: Project, _: Project) -> Iterator[Said]:
    for job in project.jobs:
        yield from _by_a_key(job, project)
    yield from _by_a_command(project)
    for script in project.scripts:
        jobs = [job for job in project.jobs if script.file in job.files]
        if not jobs or any(map(on_gpu, jobs)):  # a test on the CPU begins from nothing, and nobody waits
            yield from _by_a_call(script, project)
        yield from _when_it_is_made(script, project)
        yield from tokenised_each_epoch(script, project)


def _by_a_key(job: Job, project: Project) -> Iterator[Said]:
    key = given(job, "overwrite_cache")
    if key is None or key.value is not True or job.trainer is not Trainer.LLAMA_FACTORY:
        return
    data, cost = project.data_of(job), ""
    if data is not None and data.lengths and not data.sampled:
        processes = job.get("dataset_num_proc") or 1
        seconds = sum(data.lengths) / TOKENS_A_SECOND / (processes if isinstance(processes, int) else 1)
        if seconds < SECONDS:
            return
        cost = f", about {seconds:,.0f} s"
    yield _finding(f"`overwrite_cache: true`{cost}", key.place, (Change(Edit.SET, key.place, key.name, False),))


_THROWN_AWAY = re.compile(
    r"^[^#\n]*(\brm -\w*r\w* [^\n]*(\.cache/huggingface|HF_DATASETS_CACHE|HF_HOME)"
    r"|\bHF_(DATASETS_CACHE|HOME)=[\"']?\$(\(mktemp|\{?(SLURM_)?TMPDIR)[^\n]*)",
    re.MULTILINE,
)


def _by_a_command(project: Project) -> Iterator[Said]:
    """A launcher that clears the cache of data before it starts, or puts it where nothing stays."""
    for job in project.jobs:
        if job.trainer is Trainer.AXOLOTL:
            yield from _prepared_rows_thrown_away(job, project)
    for what, place, also in of_containers(project):
        yield replace(_finding(what, place, ()), also=also)
    for launch in project.launches:
        overwrites = launch.flags.get("overwrite_cache")
        if overwrites is not None and overwrites.value is not False and _takes_the_flag(launch.script, project):
            yield _finding("`--overwrite_cache`", overwrites.place, ())
    by_file = {launch.file: launch for launch in project.launches if launch.script}
    for file, launch in by_file.items():
        text = project.texts.get(file, "")
        found = _THROWN_AWAY.search(text)
        name, _, value = (found[1] if found is not None else "").partition("=")
        if found is not None and value and is_staged(text, name.split()[-1], value.strip().strip("\"'")):
            found = None
        script = next((one for one in project.scripts if one.file == launch.script), None)
        if script is None or not any(_knows_datasets(one) for one in together(script, project)):
            continue
        gone = next(of_one_run(text), None) if found is None else None
        if gone is not None:
            yield _finding(f"`{gone[0][:60]}` is a folder that is gone afterwards", Place(file, gone[1]), ())
        if found is None:
            continue
        line = text.count("\n", 0, found.start(1)) + 1
        yield _finding(f"`{found[1].strip()[:60]}`", Place(file, line), ())


def _takes_the_flag(file: str, project: Project) -> bool:
    """The script that reads it hands it to `datasets`: as the examples of transformers do."""
    script = next((one for one in project.scripts if one.file == file), None)
    near = together(script, project) if script is not None else ()
    return any(re.search(r"load_from_cache_file\W+not \w[\w.]*overwrite_cache", one.source) for one in near)


def _prepared_rows_thrown_away(job: Job, project: Project) -> Iterator[Said]:
    """`rm -rf last_run_prepared` in front of Axolotl: rows that it has tokenised and packed."""
    folder = str(
        job.get("dataset_prepared_path")
        or next((one.value for one in job.given if one.name == "dataset_prepared_path"), "last_run_prepared")
    )
    thrown = re.compile(rf"^[^#\n]*?(\brm -\w*r\w* [^\n]*{re.escape(folder.strip('./'))}[^\n]*)", re.MULTILINE)
    for file in dict.fromkeys(
        launch.file for launch in project.launches if set(job.files) & {launch.file, *launch.configs}
    ):
        text = project.texts.get(file, "")
        if (found := thrown.search(text)) is not None:
            yield _finding(f"`{found[1].strip()[:60]}`", Place(file, text.count("\n", 0, found.start(1)) + 1), ())


_GOES = re.compile(
    r"^[^#\n]*(HF_DATASETS_CACHE|HF_HOME|cache_dir)[^\n]*(mkdtemp|TemporaryDirectory|TMPDIR)", re.MULTILINE
)


def _by_a_call(script: Script, project: Project) -> Iterator[Said]:
    if (gone := _GOES.search(script.source)) is not None and _knows_datasets(script):
        line = script.source.count("\n", 0, gone.start(1)) + 1
        yield _finding(f"`{gone[1]}` is a folder that is gone afterwards", Place(script.file, line), ())
    for call in script.calls:
        last = call.name.rpartition(".")[2]
        if call.name in ("datasets.disable_caching", "datasets.fingerprint.disable_caching"):
            yield _finding("`disable_caching()`", call.place, ())
        elif last == "cleanup_cache_files":
            yield _finding(f"`{call.on}.cleanup_cache_files()`", call.place, ())
        elif last == "load_dataset" and (mode := call.arguments.get("download_mode")) is not None:
            if str(mode.value).lower() in ("force_redownload", "reuse_cache_if_exists") and not _from_a_flag(mode.via):
                yield _finding(f'`load_dataset(..., download_mode="{mode.value}")`', call.place, ())
        elif last == "map" and (kept := call.arguments.get("keep_in_memory")) is not None and kept.value is True:
            if (
                call.on
                and not _from_a_flag(kept.via)
                and any(_knows_datasets(one) for one in together(script, project))
            ):
                yield _finding(f"`{call.on}.map(..., keep_in_memory=True)`", kept.place, ())
        elif last in ("map", "filter") and call.on:
            cached = call.arguments.get("load_from_cache_file")
            if cached is None or cached.value is not False or cached.others or _from_a_flag(cached.via):
                continue
            if any(_knows_datasets(one) for one in together(script, project)):
                change = Change(Edit.SET, cached.place, "load_from_cache_file", True)
                yield _finding(f"`{call.on}.{last}(..., load_from_cache_file=False)`", cached.place, (change,))


def _knows_datasets(script: Script) -> bool:
    return any(name.partition(".")[0] in ("datasets", "trl", "transformers") for name in script.imports.values())


_KEEPS = re.compile(
    r"save_to_disk|(torch|np|numpy|pickle|joblib|json)\.(save|dump)|memmap|cache|save_file|to_parquet|\.map\("
)


_FEW = re.compile(
    r"\b(a )?(few|couple of) (hundred |thousand |dozen )?(short |small )?(rows|examples|samples|pairs|lines|records)\b"
    r"|\b(small|tiny) (data ?set|file|corpus)\b",
    re.IGNORECASE,
)
"""What a file says of its own data where preparing it takes no time."""


def _when_it_is_made(script: Script, project: Project) -> Iterator[Said]:
    """A data set tokenises row by row when it is made, in each of several processes, and nothing keeps what it made."""
    sets = {
        node.name
        for node in ast.walk(script.tree)
        if isinstance(node, ast.ClassDef) and any("Dataset" in ast.unparse(base) for base in node.bases)
    }
    for call in script.calls:
        inside = [one.name for one in call.around if one.kind == "function"]
        of_class = any(one.kind == "class" and ("data" in one.name.lower() or one.name in sets) for one in call.around)
        repeated = any(one.kind in ("for", "while") for one in call.around)
        tokenizes = re.search(r"(^|\.)(\w*tokenizer|tok|tokenize|encode)$", f"{call.on or ''}.{call.name}".rstrip("."))
        if of_class and inside[:1] == ["__init__"] and repeated and tokenizes:
            users = [one for one in project.scripts if one is script or script in imported(one, project)]
            if _KEEPS.search(code(script)) or not any(on_several(one, project) for one in users):
                return
            if _FEW.search(script.source):
                return  # seconds
            yield _finding(
                f"`{inside[0]}` tokenises row by row in every process and keeps nothing of it", call.place, ()
            )
            return


def _from_a_flag(via: tuple[Place, ...]) -> bool:
    return any(place.key.startswith("-") for place in via)


def _finding(what: str, place: Place, changes: tuple[Change, ...]) -> Finding:
    return Finding(
        f"{what}: all rows are prepared again at every start.",
        place=place,
        evidence=Evidence(Level.TEXT, {"cache": False}),
        stake=Stake(AtStake.TIME, 0.0, 0.0, "a start, not a step"),
        remedy=Remedy(
            Risk.SAFE,
            "Let `datasets` keep what it has prepared: it is made again when the function or the data changes.",
            changes,
            breaks="What a function reads from elsewhere (a template, a file, a global of another module) does not"
            " count"
            " as a change.",
            measure="time python train.py --max_steps 1",
        ),
    )


_LF = (
    "model_name_or_path: Qwen/Qwen2.5-0.5B\nstage: sft\ndo_train: true\nfinetuning_type: lora\ndataset: mine\n"
    "template: qwen\ncutoff_len: 2048\noutput_dir: saves/mine\n"
)
_MAP = """from datasets import load_dataset

rows = load_dataset("json", data_files="rows.jsonl", split="train")
rows = rows.map(tokenize"""
RULE = Rule(
    code="HST006",
    name="prepared-every-time",
    summary="Data is prepared again at every start.",
    group=Group.PERFORMANCE,
    subject=Subject.PROJECT,
    check=check,
    page=Page(
        what="`datasets` keeps the result of `map` and `filter` under a fingerprint of function and data, unless"
        " told not to; LLaMA-Factory throws it away with `overwrite_cache: true`.",
        why="Preparing takes minutes to hours, while all GPUs wait.",
        detected="E0: a data set that tokenises in a loop when it is made, in each of several processes, where no"
        " file keeps"
        " the result; `load_from_cache_file=False` or `disable_caching()`, given as such and not by a flag;"
        " `keep_in_memory=True`, `force_redownload`, a cache in a folder that goes away or in a container,"
        " a launcher that clears it, or"
        " Axolotl's folder of prepared rows. E1:"
        " `overwrite_cache: true`, given; with data, only where a process needs ten seconds or more for it.",
        proven="The time from the start to the first step, twice.",
        deliberate=(
            "The function's result depends on something that the fingerprint does not see.",
            "The disk is full.",
        ),
        sources=(
            "The documentation of `datasets` on its cache",
            "TRL on two cores: 0.25 M tokens a second (the project's notes on its peers)",
        ),
    ),
    bad=Example({"prepare.py": f"{_MAP}, load_from_cache_file=False)\n"}, says="every start"),
    good=Example({"prepare.py": f"{_MAP}, num_proc=4)\n"}),
    also_bad=(Example({"run.yaml": f"{_LF}overwrite_cache: true\n"}, says="every start"),),
    formerly=("DAT006",),
    former_names=(
        "tokenised-every-time",
        "map-without-cache",
    ),
)

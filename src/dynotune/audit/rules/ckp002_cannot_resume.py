"""CKP002: checkpoints lack what resuming needs: as a job or a loop will write them, or as a run has left them."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping

from dynotune.audit.facts.job import Job, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.run import RunFacts
from dynotune.audit.facts.together import code
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.rule import Example, Group, Page, Rule, Subject
from dynotune.audit.shapes.folder_of_the_hour import folder_of_the_hour
from dynotune.audit.shapes.loop_that_cannot_go_on import LONG, loop_that_cannot_go_on, restarted, run_by_jobs
from dynotune.audit.shapes.resumed_in_vain import resumed_in_vain
from dynotune.audit.shapes.resuming_claimed import OFF

_SFT = "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: data.jsonl\nresume_from_checkpoint: true\n"

WEIGHTS = (".safetensors", ".bin")
STATES = ("optimizer.pt", "optimizer.bin", "global_step", "optimizer_0", "pytorch_model_fsdp", "__0_0.distcp")
"""Parts of names of what holds the optimizer, for one process, DeepSpeed and FSDP."""


def check(project: Project, _: Project) -> Iterator[Said]:
    for job in project.jobs:
        yield from _will_be_written(job, project)
    yield from _started_again(project)
    for script in project.scripts:
        yield from loop_that_cannot_go_on(script, project)
    yield from folder_of_the_hour(project)
    yield from resumed_in_vain(project)
    for run in project.runs:
        yield from _left_behind(run)


def _resumed(job: Job, project: Project) -> Place | None:
    """Where the trainer is told to go on from a checkpoint: `trainer.train(resume_from_checkpoint=True)`."""
    for script in (one for one in project.scripts if one.file in job.files):
        for call in script.calls_of("train"):
            given = call.arguments.get("resume_from_checkpoint")
            if given is not None and given.is_known and given.value and not given.others:
                return call.place
    return None


def _will_be_written(job: Job, project: Project) -> Iterator[Said]:
    if job.get("save_only_model") is not True or job.trainer is Trainer.DYNOTUNE:
        return
    resumes = job.place("resume_from_checkpoint") if job.get("resume_from_checkpoint") else _resumed(job, project)
    if resumes is None:
        yield from _on_the_way(job)
        return
    yield Finding(
        f"`{job.called('save_only_model')}: true` leaves the optimizer, the schedule and the random numbers out of"
        " checkpoints,"
        f" and `{job.called('resume_from_checkpoint')}` resumes from one: the optimizer begins anew.",
        place=job.place("save_only_model"),
        evidence=Evidence(
            Level.RESOLVED,
            {"save_only_model": True, "resume_from_checkpoint": job.get("resume_from_checkpoint") or True},
        ),
        stake=Stake(AtStake.RESULT),
        remedy=Remedy(
            Risk.SAFE,
            f"Set `{job.called('save_only_model')}: false`.",
            (job.set("save_only_model", False),),
            breaks="Checkpoints take the optimizer's states more: two or three times the weights.",
        ),
        also=(resumes,),
    )


_RESUMES = re.compile(r"resume|last_checkpoint|latest_checkpoint|from_checkpoint", re.IGNORECASE)


def _started_again(project: Project) -> Iterator[Said]:
    """The scheduler starts the job again, and nothing asks the trainer to go on from what it saved."""
    again = list(restarted(project))
    if not again or any(_RESUMES.search(OFF.sub("", code(one))) for one in project.scripts):
        return
    others = [text for file, text in project.texts.items() if not file.endswith((".py", ".ipynb"))]
    if any(_RESUMES.search(OFF.sub("", re.sub(r"(?m)(^|\s)#.*$", "", text))) for text in others):
        return
    files = {place.file for place in again}
    files |= {file for file, jobs in run_by_jobs(project).items() if jobs & files}
    for job in project.jobs:
        anew = job.trainer is Trainer.LLAMA_FACTORY and _writes_anew(job, project)
        if job.trainer not in (Trainer.TRANSFORMERS, Trainer.TRL, Trainer.AXOLOTL) and not anew:
            continue
        if not files & set(job.files):
            continue
        if job.get("save_strategy") == "no":
            continue  # what another rule says
        calls = [
            call
            for script in project.scripts
            if script.file in job.files
            for call in script.calls
            if call.name.endswith(".train") and (call.name.endswith("Trainer.train") or "trainer" in call.on.lower())
        ]
        place = calls[0].place if calls else job.home
        yield Finding(
            "The job is started again by itself, and nothing asks the trainer to go on from its checkpoints: it begins at"
            " the first row each time.",
            place=place,
            evidence=Evidence(Level.RESOLVED, {"started again": str(again[0]), "resume_from_checkpoint": None}),
            stake=Stake(AtStake.LOST),
            remedy=Remedy(
                Risk.OPERATIONAL,
                "Set `auto_resume_from_checkpoints: true`."
                if job.trainer is Trainer.AXOLOTL
                else "Set `overwrite_output_dir: false`: it goes on from the last checkpoint of the folder by itself."
                if anew
                else "Hand `trainer.train` the last checkpoint where there is one"
                " (`resume_from_checkpoint=get_last_checkpoint(output_dir)`).",
                measure="Kill it after a save and start it again: the step goes on.",
            ),
            also=tuple(again),
        )
        return


def _writes_anew(job: Job, project: Project) -> bool:
    """LLaMA-Factory looks for the last checkpoint itself, but where it is to write its folder anew."""
    values = next((one.values for one in project.configs if one.file == job.home.file), {})
    return values.get("overwrite_output_dir") is True


def _on_the_way(job: Job) -> Iterator[Said]:
    """Checkpoints are written again and again, and a run that stops cannot go on from any."""
    kept = job.get("save_strategy")
    again = kept == "epoch" or (kept == "steps" and (job.is_given("save_steps") or job.is_given("save_strategy")))
    if not again or job.get("load_best_model_at_end") is True or job.get("save_total_limit") is None:
        return
    yield Finding(
        f"`{job.called('save_only_model')}: true` with checkpoints on the way that are thrown away again: none"
        f" can be evaluated"
        " later, and none resumed from.",
        place=job.place("save_only_model"),
        evidence=Evidence(Level.RESOLVED, {"save_only_model": True, "save_strategy": kept}),
        stake=Stake(AtStake.LOST),
        remedy=Remedy(
            Risk.SAFE,
            f"Set `{job.called('save_only_model')}: false`.",
            (job.set("save_only_model", False),),
            breaks="Checkpoints take the optimizer's states more: two or three times the weights.",
        ),
    )


def _left_behind(run: RunFacts) -> Iterator[Said]:
    if run.trainer != "transformers":
        return  # Dynotune's checkpoints have a manifest, and `dynotune verify`
    checkpoints: dict[int, dict[str, int]] = defaultdict(dict)
    for name, size in run.files.items():
        folder, _, file = name.partition("/")
        number = folder.rpartition("-")[2]
        if file and folder.startswith("checkpoint-") and number.isdigit():
            checkpoints[int(number)][file] = size
    if not checkpoints:
        return
    last = max(checkpoints)
    missing = list(_missing(checkpoints[last]))
    if missing:
        yield Finding(
            f"`checkpoint-{last}`, the last of {len(checkpoints)}, has no {' and no '.join(missing)}: resuming from it"
            f" {'stops' if 'weights' in missing or 'trainer_state.json' in missing else 'begins with an empty optimizer'}.",
            place=Place(f"{run.folder}/checkpoint-{last}"),
            evidence=Evidence(Level.PROFILED, {"missing": missing, "files": len(checkpoints[last])}),
            stake=Stake(AtStake.LOST),
            remedy=Remedy(
                Risk.OPERATIONAL,
                "Resume from an earlier one that is whole, and save the optimizer too (`save_only_model: false`).",
                effort=Effort.MINUTES,
            ),
        )


def _missing(files: Mapping[str, int]) -> Iterator[str]:
    sharded = any("global_step" in name or ".distcp" in name for name in files)
    if not sharded and not any(name.endswith(WEIGHTS) and size > 0 for name, size in files.items()):
        yield "weights"
    if not files.get("trainer_state.json"):
        yield "trainer_state.json"
    if not any(part in name and size > 0 for name, size in files.items() for part in STATES):
        yield "optimizer state"


_LOOP = """import torch

for epoch in range(3):
    for batch in train_loader:
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    %s
"""
_BOTH = 'torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, "last.pt")'
RULE = Rule(
    code="CKP002",
    name="cannot-resume",
    summary="Checkpoints lack what resuming needs, or a loop saves nothing to go on from.",
    group=Group.OPERATION,
    subject=Subject.PROJECT,
    check=check,
    page=Page(
        what="A run goes on as if it had not stopped only with the optimizer's states, the schedule, the random"
        " numbers and"
        " its place in the data. transformers writes a checkpoint in place, `trainer_state.json` last, and resumes"
        " from the"
        " newest folder, whatever is in it.",
        why="Weights alone give another run: Adam's moments begin at zero, the learning rate warms up again, and"
        " the first"
        " rows are seen twice. A run that was killed while it saved leaves a folder that only looks like a checkpoint.",
        detected="E1: `save_only_model` together with `resume_from_checkpoint`, or with checkpoints that are thrown away"
        " again; or a job that its scheduler or its own file starts again (`--requeue`, `--array=1-8%1`,"
        " `until python ...`), where no file speaks of resuming. E0: a loop with an optimizer's step saves weights in it,"
        " and the file never speaks of the optimizer's state, of resuming or of a checkpoint's; or the whole state"
        " is saved"
        " on the way (`save_state`, or anything in a job with `--requeue`) and no file of the project loads any. A file"
        " that saves nothing on the way is reported where its options or the project's texts say that a run is long"
        f" ({LONG:g} hours); nothing is where they say that it takes minutes. Or the last"
        " checkpoint is looked for in a folder whose name has the time in it, or the number of a job that a"
        " document says is"
        " submitted again. Or `resume_from_checkpoint` is among a trainer's arguments and `train()` is called"
        " without it, or"
        " what a loop loads under a condition on resuming is the model's state alone. E3, with `--run`: the files"
        " of the last"
        " checkpoint: weights, the optimizer's states (also DeepSpeed's and FSDP's), and the trainer's state.",
        proven="Files of a checkpoint: `optimizer.pt`, `scheduler.pt`, `rng_state.pth`. Kill the run after a save,"
        " start it"
        " again, and compare the losses with a run that was not killed.",
        deliberate=(
            "Only the weights are to be taken over, or evaluated.",
            "Runs are short enough to start again.",
        ),
        sources=(
            "transformers' documentation of `save_only_model`",
            "transformers issues 35782 and 40790; a torn checkpoint was taken and crashed in TRL 1.16",
            "PyTorch's tutorial on saving a general checkpoint",
        ),
    ),
    bad=Example({"sft.yaml": f"{_SFT}save_only_model: true\n"}, says="begins anew"),
    good=Example({"sft.yaml": f"{_SFT}save_only_model: false\n", "train.py": _LOOP % _BOTH}),
    also_bad=(
        Example({"train.py": _LOOP % 'model.save_pretrained(f"epoch-{epoch}")'}, says="nothing keeps the optimizer"),
    ),
    formerly=("CKP007", "CKP052"),
    former_names=(
        "left-without-states",
        "optimizer-not-saved",
    ),
)

"""CKP007: the last checkpoint of a run lacks what resuming needs, or is not whole."""

from collections import defaultdict
from collections.abc import Iterator, Mapping

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.run import RunFacts
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.rule import Group, Page, Rule, Subject

WEIGHTS = (".safetensors", ".bin")
STATES = ("optimizer.pt", "optimizer.bin", "global_step", "optimizer_0", "pytorch_model_fsdp", "__0_0.distcp")
"""Parts of names of what holds the optimizer, for one process, DeepSpeed and FSDP."""


def check(run: RunFacts, project: Project) -> Iterator[Said]:
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


RULE = Rule(
    code="CKP007",
    name="left-without-states",
    summary="The last checkpoint lacks what resuming needs.",
    group=Group.OPERATION,
    subject=Subject.RUN,
    check=check,
    page=Page(
        what="transformers writes a checkpoint in place, `trainer_state.json` last, and resumes from the newest folder,"
        " whatever is in it.",
        why="A run that was killed while it saved leaves a folder that looks like a checkpoint and is none.",
        detected="E3: the files of the last checkpoint: weights, the optimizer's states (also DeepSpeed's and FSDP's), and"
        " the trainer's state.",
        proven="`ls -l` in the folder.",
        deliberate=("Only the weights were wanted (`save_only_model`).",),
        sources=("transformers issues 35782 and 40790; a torn checkpoint was taken and crashed in TRL 1.16",),
    ),
)

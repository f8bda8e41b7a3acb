"""CFG011: a comment or a document claims what the settings do not come to."""

from collections.abc import Iterator

from dynotune.audit.facts.project import Project
from dynotune.audit.finding import Said
from dynotune.audit.rule import Example, Group, Page, Rule, Subject
from dynotune.audit.shapes.claimed_features import claimed_features
from dynotune.audit.shapes.claimed_settings import claimed_settings
from dynotune.audit.shapes.claims_of_all_rows import claims_of_all_rows
from dynotune.audit.shapes.claims_of_comments import claims_of_comments
from dynotune.audit.shapes.claims_of_names import claims_of_help, claims_of_names
from dynotune.audit.shapes.claims_of_sharding import claims_of_sharding
from dynotune.audit.shapes.epochs_that_steps_do_not_make import epochs_that_steps_do_not_make
from dynotune.audit.shapes.installed_for_nothing import installed_for_nothing
from dynotune.audit.shapes.resuming_claimed import resuming_claimed


def check(project: Project, _: Project) -> Iterator[Said]:
    for job in project.jobs:
        yield from claims_of_comments(job, project)
        yield from claims_of_names(job)
        yield from epochs_that_steps_do_not_make(job, project)
    yield from claims_of_help(project)
    yield from claimed_settings(project)
    yield from claimed_features(project)
    yield from resuming_claimed(project)
    yield from claims_of_sharding(project)
    yield from claims_of_all_rows(project)
    yield from installed_for_nothing(project)


_SFT = "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: data.jsonl\n"
_LORA = (
    "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: data.jsonl\nuse_peft: true\nlora_r: 16\n"
    "lora_target_modules: all-linear\ndtype: bfloat16\nmax_length: {}\n"
)
RULE = Rule(
    code="CFG011",
    name="claimed-otherwise",
    summary="A comment or a document claims what the settings do not come to.",
    group=Group.CONFIGURATION,
    subject=Subject.PROJECT,
    check=check,
    page=Page(
        what="Comments such as `# effective batch size 64`, or `# flash attention` beside `attn_implementation: sdpa`, are"
        " compared with what the settings come to. The README says rank 64 at 8,192 tokens for three epochs, and the"
        " configuration has another rank, length or number.",
        why="A batch is changed, its comment is not, and the next run is planned by the comment: the learning rate is kept"
        " for a batch that is not trained. Who reads a document plans, compares and reports a run that was not made.",
        detected="E1: comments that name the effective, global or total batch size, or the rows an update, as a number,"
        " against rows, accumulation and processes; where the processes are not known, only numbers that none of them makes."
        " A product in a comment that is not what it says; ZeRO's stage and offloading against DeepSpeed's file. Sentences"
        " of documents (change logs, notes and code blocks left out) and of comments at the head of a file or beside the"
        " key, of ranks, lengths, epochs, rates, schedules, packing, checkpointing, 4 bits and rows a step, against the"
        " settings of every job that they may mean: said only where all are known and none is as claimed. Sentences that"
        " compare, suggest or look back are left out. A document that says that a run takes all of its data, where every"
        " command gives a number of rows (`max_samples`). Sentences that tell to install a package for speed or memory,"
        " where nothing of the project asks for it and no library takes it by itself. Sentences, entries of lists and heads"
        " of scripts that name something as used (clipping, early stopping, DeepSpeed), where no line does it; a run that"
        " is said to go on by itself, where Axolotl is not told to or LLaMA-Factory writes its folder anew; names of runs"
        " and folders, and helps of flags, that tell another value. Epochs that a text names, where a number of steps, the"
        " rows of each and the rows of the data that are told come to others.",
        proven="`dynotune plan --config sft.yaml` prints examples a step, `dynotune audit --config FILE --all` settings.",
        deliberate=(
            "The text speaks of another machine, of a run with other flags, or of one that is not in this project.",
        ),
        sources=(),
    ),
    bad=Example(
        {
            "sft.yaml": f"{_SFT}per_device_train_batch_size: 4\ngradient_accumulation_steps: 6  # effective batch size: 64\n"
        },
        says="64 examples a step",
    ),
    good=Example(
        {
            "sft.yaml": f"{_LORA.format(8192)}per_device_train_batch_size: 4\n"
            "gradient_accumulation_steps: 8  # effective batch size: 64 on two GPUs\n",
            "README.md": "# Model\n\nLoRA of rank 16, sequence length 8192.\n",
        }
    ),
    also_bad=(
        Example(
            {"sft.yaml": f"# LoRA of rank 16, sequence length 8192\n{_LORA.format(2048)}"}, says="sequence length 8192"
        ),
    ),
    formerly=("CFG022",),
    former_names=(
        "claimed-setting",
        "comment-and-settings",
    ),
)

"""CFG018: an evaluation is asked for, and there are no rows for it."""

import re
from collections.abc import Iterator

from dynotune.audit.facts.asked import given, number
from dynotune.audit.facts.job import GivenKey, Job, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.together import code
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

_AXOLOTL = (
    "base_model: Qwen/Qwen2.5-0.5B\ndatasets:\n  - path: data.jsonl\n    type: alpaca\nsequence_len:"
    " 2048\nmicro_batch_size: 4\n"
    "output_dir: out\nval_set_size: {}\nearly_stopping_patience: 3\n"
)
_WANTS = {
    Trainer.AXOLOTL: (
        "early_stopping_patience",
        "load_best_model_at_end",
        "metric_for_best_model",
        "eval_steps",
        "eval_strategy",
        "evaluation_strategy",
    ),
    Trainer.LLAMA_FACTORY: ("eval_strategy", "evaluation_strategy", "load_best_model_at_end", "do_eval"),
}
_ROWS = {
    Trainer.AXOLOTL: ("test_datasets", "test_dataset", "eval_dataset"),
    Trainer.LLAMA_FACTORY: ("eval_dataset", "eval_on_each_dataset"),
}
_SHARE = {Trainer.AXOLOTL: "val_set_size", Trainer.LLAMA_FACTORY: "val_size"}


def check(job: Job, project: Project) -> Iterator[Said]:
    if job.trainer not in _WANTS:
        yield from _of_a_script(job, project)
        return
    strategy = given(job, "eval_strategy") or given(job, "evaluation_strategy")
    if strategy is not None and not _asks(strategy):
        return
    share = given(job, _SHARE[job.trainer])
    if any((key := given(job, name)) is not None and key.value for name in _ROWS[job.trainer]):
        return
    if share is not None and share.value not in (0, 0.0, None):
        return
    if share is None and (job.trainer is Trainer.AXOLOTL or number(job, "val_size")):
        return
    wanted = next((key for name in _WANTS[job.trainer] if (key := given(job, name)) is not None and _asks(key)), None)
    if wanted is None:
        return
    none = f"`{_SHARE[job.trainer]}` is 0" if share is not None else f"`{_SHARE[job.trainer]}` is not given"
    yield Finding(
        f"`{wanted.name}: {wanted.value}` wants an evaluation, {none} and no data set is named for it: nothing is ever"
        " evaluated, or the run stops.",
        place=wanted.place,
        evidence=Evidence(Level.RESOLVED, {wanted.name: wanted.value}),
        stake=Stake(AtStake.LOST),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            f"Hold rows out (`{_SHARE[job.trainer]}: 0.02`), or name a data set for it.",
            accuracy="The rows that are held out are not trained on.",
        ),
        also=(share.place,) if share is not None else (),
    )


def _of_a_script(job: Job, project: Project) -> Iterator[Said]:
    """A script's only trainer of transformers or TRL, and no word of rows to evaluate on."""
    key = given(job, "eval_strategy")
    if job.trainer not in (Trainer.TRANSFORMERS, Trainer.TRL) or key is None or key.value not in ("steps", "epoch"):
        return
    setting, scripts = job.setting("eval_strategy"), [one for one in project.scripts if one.file in job.files]
    made = [call for one in scripts for call in one.calls if _TRAINERS.fullmatch(call.name)]
    if len(made) != 1 or setting is None or setting.others or "**" in made[0].arguments or len(made[0].arguments) > 6:
        return
    near = "\n".join(code(one) for one in project.scripts)
    if re.search(r"eval_dataset|get_eval_dataloader|eval_strategy\s*=\s*[\"']no", near) or {"0", "3", "4"} & set(
        made[0].arguments
    ):
        return
    yield Finding(
        f"`{key.name}: {key.value}` wants an evaluation, and `{made[0].name.rpartition('.')[2]}` gets no `eval_dataset`: the"
        " run stops when the trainer is made, or at the first evaluation.",
        place=key.place,
        evidence=Evidence(Level.RESOLVED, {key.name: key.value, "eval_dataset": None}),
        stake=Stake(AtStake.STOPS),
        remedy=Remedy(Risk.BEHAVIOURAL, "Hand it rows that are held out, or set `no`."),
        also=(made[0].place,),
    )


_TRAINERS = re.compile(r"transformers\.(?:Seq2Seq)?Trainer|trl\.(?:SFT|DPO|KTO|ORPO|CPO)Trainer")


def _asks(key: GivenKey) -> bool:
    return key.value not in (None, False, 0, "no", "none", "")


RULE = Rule(
    code="CFG018",
    name="evaluation-of-nothing",
    summary="An evaluation is asked for, and there are no rows for it.",
    group=Group.CONFIGURATION,
    subject=Subject.JOB,
    check=check,
    page=Page(
        what="Evaluations, early stopping and the best checkpoint need rows that are held out.",
        why="Without them Axolotl evaluates nothing and stops nothing early, and LLaMA-Factory stops at the start.",
        detected="E1: keys that need an evaluation's result, no data set for it, and a share of 0; or a"
        " script's trainer without `eval_dataset`."
        " `evals_per_epoch` alone is left"
        " be: most configurations carry it from an example, and it does nothing then.",
        proven="The log has no `eval_loss`.",
        deliberate=("The same file is run with another share, by a flag.",),
        sources=(
            "Axolotl's validation: `eval_steps` and `eval_strategy` are refused where `val_set_size` is 0",
            "LLaMA-Factory's parser: evaluation needs `eval_dataset` or `val_size`",
        ),
    ),
    bad=Example({"run.yml": _AXOLOTL.format("0")}, says="nothing is ever evaluated"),
    good=Example({"run.yml": _AXOLOTL.format("0.02")}),
)

"""DPO002: a cache of reference log-probabilities that does not notice what they depend on."""

from collections.abc import Iterator

from dynotune.audit.facts.asked import at_least
from dynotune.audit.facts.job import Job, Method, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

_DPO = (
    "model_name_or_path: Qwen/Qwen2.5-7B-Instruct\ndataset_name: pairs.jsonl\nbeta: 0.1\nuse_peft: true\n"
    "precompute_ref_log_probs: true\n"
)


def check(job: Job, project: Project) -> Iterator[Said]:
    if (
        job.method is not Method.DPO
        or job.trainer is not Trainer.TRL
        or job.get("precompute_ref_log_probs") is not True
    ):
        return
    if at_least(job, "trl", 1, 0) is False:
        return
    length = job.setting("max_length")
    if job.get("truncation_mode") == "keep_end" and job.is_given("truncation_mode"):
        key, shown = "truncation_mode", "keep_end"
    elif length is not None and length.is_known and length.value is None and job.is_given("max_length"):
        key, shown = "max_length", "null"
    else:
        return
    yield Finding(
        f"With `{key}: {shown}` TRL's cache of reference log-probabilities is found by the data and the model alone: another"
        " `max_length` or `ld_alpha` in a later run takes the old ones, and nothing says so.",
        place=job.place(key),
        evidence=Evidence(Level.RESOLVED, {key: shown, "precompute_ref_log_probs": True}),
        stake=Stake(AtStake.LOST, source="one row's sum was -303.86 from the cache and -216.09 computed anew"),
        remedy=Remedy(
            Risk.OPERATIONAL,
            "Clear the cache of `datasets` before a run with other settings, or train with `dynotune dpo`, whose"
            " reference is"
            " found by the tokens and checked at step 0.",
        ),
        also=(job.place("precompute_ref_log_probs"),),
    )


RULE = Rule(
    code="DPO002",
    name="stale-reference",
    summary="A cache of reference log-probabilities that may be stale.",
    group=Group.CORRECTNESS,
    subject=Subject.JOB,
    check=check,
    page=Page(
        what="TRL keeps the reference's log-probabilities in the cache of `datasets`, by a hash of the data and the"
        " model. The"
        " filter for long prompts brings the settings into that hash; without it they are not in it.",
        why="Wrong reference values train a wrong model: the loss of the first step is then not ln 2, which nobody"
        " looks at.",
        detected="E1: `precompute_ref_log_probs` with `truncation_mode: keep_end` or without `max_length`.",
        proven="The first step's loss with sigmoid: 0.6931 where the reference is right.",
        deliberate=("Nothing that the log-probabilities depend on is ever changed.",),
        sources=("TRL 1.16 run on the CPU: step 1 at 5.16 from a stale cache where a fresh run has 0.6931",),
    ),
    bad=Example({"dpo.yaml": f"{_DPO}truncation_mode: keep_end\n"}, says="takes the old ones"),
    good=Example({"dpo.yaml": f"{_DPO}truncation_mode: keep_start\n"}),
)

"""OPT002: a learning rate far outside of what is usual for what is trained."""

from collections.abc import Iterator

from dynotune.audit.facts.adapted import trains_adapters
from dynotune.audit.facts.asked import number
from dynotune.audit.facts.job import Job, Method
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.models import known
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

USUAL = {
    (Method.SFT, False): (1e-7, 2e-4),
    (Method.SFT, True): (5e-6, 3e-3),
    (Method.DPO, False): (1e-8, 1e-5),
    (Method.DPO, True): (1e-7, 1e-4),
}
"""Within these (by method, and whether adapters are trained) nothing is said: ten times around what is recommended."""

RECOMMENDED = {
    (Method.SFT, False): "1e-5 to 5e-5",
    (Method.SFT, True): "1e-4 to 3e-4",
    (Method.DPO, False): "5e-7 to 5e-6",
    (Method.DPO, True): "5e-6 to 2e-5",
}

SMALL = 0.2
"""Billions of parameters below which full training takes larger rates."""

_DPO = "model_name_or_path: Qwen/Qwen2.5-0.5B-Instruct\ndataset_name: pairs.jsonl\nbeta: 0.1\nuse_peft: false\n"


TRIAL = 50
"""Steps up to which a run is a trial."""


def check(job: Job, project: Project) -> Iterator[Said]:
    rate, lora = number(job, "learning_rate"), trains_adapters(job, project)
    optim = job.get("optim")
    if rate is None or lora is None or job.method not in (Method.SFT, Method.DPO) or not job.is_given("learning_rate"):
        return
    if not isinstance(optim, str) or "adam" not in optim.lower():
        return  # other optimizers have other scales
    model = known(job.get("model_name_or_path"))
    if model is not None and model.billions is not None and model.billions < SMALL:
        return
    steps = number(job, "max_steps")
    if steps is not None and 0 < steps <= TRIAL:
        return  # a trial, whose loss has to move at all
    low, high = USUAL[job.method, lora]
    if low <= rate <= high:
        return
    what = f"{'adapters' if lora else 'all weights'} by {job.method.upper()}"
    sft = (
        " It is a rate of SFT's."
        if job.method is Method.DPO and rate > high and rate <= USUAL[Method.SFT, lora][1]
        else ""
    )
    yield Finding(
        f"`{job.called('learning_rate')}: {rate:g}` is far {'above' if rate > high else 'below'} what is usual for training"
        f" {what} with Adam ({RECOMMENDED[job.method, lora]}).{sft}",
        place=job.place("learning_rate"),
        evidence=Evidence(Level.RESOLVED, {"learning rate": rate, "method": str(job.method), "adapters": lora}),
        stake=Stake(AtStake.CHOICE),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            f"Try {RECOMMENDED[job.method, lora]}, on held-out data.",
            accuracy="Too large forgets or diverges; too small learns nothing.",
        ),
    )


RULE = Rule(
    code="OPT002",
    name="unusual-learning-rate",
    summary="The learning rate is far outside of what is usual.",
    group=Group.CORRECTNESS,
    subject=Subject.JOB,
    check=check,
    page=Page(
        what="Full training, adapters, SFT and preference training each have a range in which rates work, an order of"
        " magnitude apart.",
        why="Configurations are copied from one to the other, and the rate comes along.",
        detected="E1: the rate that is given against ten times around what is recommended. Only for Adam, and not for models"
        f" below {SMALL:g} billion parameters.",
        proven="Two short runs and their held-out loss.",
        deliberate=("The rate was searched for.", "A batch of another order of magnitude."),
        sources=("TRL's defaults: SFT 2e-5, DPO 1e-6; its recommendation of ten times as much for adapters",),
    ),
    bad=Example({"dpo.yaml": f"{_DPO}learning_rate: 1.0e-4\n"}, says="a rate of SFT's"),
    good=Example({"dpo.yaml": f"{_DPO}learning_rate: 1.0e-6\n"}),
)

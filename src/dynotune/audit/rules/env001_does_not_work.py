"""ENV001: what is installed does not work here: a package, or PyTorch on the machine's GPUs."""

from collections.abc import Iterator

from dynotune.audit.facts.environment import Environment
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import NOWHERE
from dynotune.audit.rule import Group, Page, Rule, Subject

NEEDED = frozenset({"torch", "transformers", "trl", "peft", "accelerate", "datasets"})
"""Without which nothing trains; others cost speed, or a way of training."""


def check(environment: Environment, project: Project) -> Iterator[Said]:
    yield from _packages(environment)
    yield from _sees_no_gpu(environment)


def _packages(environment: Environment) -> Iterator[Said]:
    failure = environment.machine.get("failure")
    if failure:
        yield Finding(
            f"The machine could not be looked at: {failure}.",
            place=NOWHERE,
            evidence=Evidence(Level.PROBED, {"error": failure}),
            stake=Stake(AtStake.STOPS),
            remedy=Remedy(Risk.OPERATIONAL, "Mend the installation: `python -c 'import torch'` shows it."),
        )
    for package in environment.packages.values():
        if package.works is not False or package.version is None:
            continue
        needed = package.name in NEEDED
        yield Finding(
            f"{package.name} {package.version} is installed and does not work: {package.why}.",
            place=NOWHERE,
            evidence=Evidence(
                Level.PROBED, {"package": package.name, "version": package.version, "error": package.why}
            ),
            stake=Stake(AtStake.STOPS if needed else AtStake.TIME),
            remedy=Remedy(
                Risk.OPERATIONAL,
                f"Install a build of {package.name} for this PyTorch, CUDA and GPU, or take it out.",
                effort=Effort.MINUTES,
                measure="dynotune env --accelerators",
            ),
        )


OLDEST = {"11": 450, "12": 525, "13": 580}
"""The driver's first number that a major version of CUDA needs on Linux."""


def _sees_no_gpu(environment: Environment) -> Iterator[Said]:
    """Although the machine has an NVIDIA driver."""
    driver, torch = environment.machine.get("driver"), environment.machine.get("torch") or {}
    if not driver or environment.gpus or torch.get("hip"):
        return
    if environment.variables.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        why, text = "`CUDA_VISIBLE_DEVICES` hides them", "Unset `CUDA_VISIBLE_DEVICES`"
    elif not torch.get("cuda"):
        why = f"PyTorch {torch.get('version')} is a build without CUDA"
        text = "Install PyTorch's build for CUDA"
    else:
        major, number = str(torch["cuda"]).partition(".")[0], str(driver.get("version")).partition(".")[0]
        old = major in OLDEST and number.isdigit() and int(number) < OLDEST[major]
        why = (
            f"driver {driver.get('version')} is older than the {OLDEST[major]} that CUDA {torch['cuda']} needs"
            if old
            else f"PyTorch {torch.get('version')} for CUDA {torch['cuda']} finds none under driver {driver.get('version')}"
        )
        text = (
            "Install a newer driver, or PyTorch for an older CUDA" if old else "Look at `nvidia-smi` and the container"
        )
    yield Finding(
        f"The machine has an NVIDIA driver, and PyTorch sees no GPU: {why}. Training would run on the CPU.",
        place=NOWHERE,
        evidence=Evidence(Level.PROBED, {"driver": driver.get("version"), "torch": torch.get("version")}),
        stake=Stake(AtStake.STOPS),
        remedy=Remedy(Risk.OPERATIONAL, f"{text}.", effort=Effort.MINUTES, measure="dynotune env"),
    )


RULE = Rule(
    code="ENV001",
    name="does-not-work",
    summary="An installed package does not work on this machine, or PyTorch sees none of its GPUs.",
    group=Group.ENVIRONMENT,
    subject=Subject.ENVIRONMENT,
    check=check,
    page=Page(
        what="Each package is imported, and each accelerator run once, in a process of its own. PyTorch may be a build for"
        " the CPU, the driver too old for its CUDA, or the devices hidden.",
        why="Libraries ask whether a package is there, not whether it works, and then fail late or fall back without a word."
        " Scripts that take the GPU where there is one run on the CPU and say nothing.",
        detected="E2: the error of the trial, which stands in the finding; the driver by `nvidia-smi`, PyTorch by asking it."
        " What was not tried is not judged.",
        proven="`dynotune env --accelerators`.",
        deliberate=("The package is for another machine that shares the environment.", "The GPUs are for others."),
        sources=(
            "transformers issue 47926: importable is not `runs on this GPU`",
            "NVIDIA's table of CUDA versions and the drivers that they need",
        ),
    ),
    formerly=("ENV002",),
    former_names=("torch-sees-no-gpu",),
)

"""ENV002: the machine has an NVIDIA driver, and PyTorch sees no GPU."""

from collections.abc import Iterator

from dynotune.audit.facts.environment import Environment
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import NOWHERE
from dynotune.audit.rule import Group, Page, Rule, Subject

OLDEST = {"11": 450, "12": 525, "13": 580}
"""The driver's first number that a major version of CUDA needs on Linux."""


def check(environment: Environment, project: Project) -> Iterator[Said]:
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
    code="ENV002",
    name="torch-sees-no-gpu",
    summary="PyTorch sees no GPU on a machine with a driver for them.",
    group=Group.ENVIRONMENT,
    subject=Subject.ENVIRONMENT,
    check=check,
    page=Page(
        what="A build for the CPU, a driver that is too old for the build's CUDA, or hidden devices.",
        why="Scripts that take the GPU where there is one run on the CPU and say nothing.",
        detected="E2: the driver by `nvidia-smi`, PyTorch by asking it in a process of its own.",
        proven="`dynotune env`.",
        deliberate=("The GPUs are for others.",),
        sources=("NVIDIA's table of CUDA versions and the drivers that they need",),
    ),
)

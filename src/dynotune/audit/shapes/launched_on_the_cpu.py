"""The configuration or the flags of accelerate's launcher ask for the CPU, where the command or the job has a GPU."""

import re
from collections.abc import Iterator

from dynotune.audit.facts.cards import CARD
from dynotune.audit.facts.launch import Launch
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place

_A_GPU = re.compile(
    r"gres=gpu|--gpus|gpus-per|CUDA_VISIBLE_DEVICES=[\"']?(?!-1|\"|'|\s)\S|nvidia\.com/gpu|--gpu_ids|--multi_gpu"
)
_HOST = re.compile(r"\bCPU[- ]only\b|\b(?:on|for|with) (?:a |the )?(?:CPU|laptop)\b|smoke|debug", re.IGNORECASE)


def launched_on_the_cpu(script: Script, project: Project) -> Iterator[Said]:
    for launch in project.launches:
        if launch.script != script.file or "accelerate" not in launch.launcher:
            continue
        found = _asked(launch, project)
        text = project.texts.get(launch.file, "") or project.documents.get(launch.file, "")
        named = _A_GPU.search(text) or any(CARD.search(one) for one in project.documents.values())
        told = [text, *project.documents.values()]
        if found is None or not named or any(_HOST.search(one) for one in told):
            continue
        place, shown = found
        yield Finding(
            f"`{shown}` of accelerate's launcher trains on the CPU, and the GPU that the project has for it is left idle.",
            place=place,
            evidence=Evidence(Level.RESOLVED, {"use_cpu": True}),
            stake=Stake(AtStake.TIME, 0.8, 0.99, "a GPU multiplies matrices tens of times faster than a host's cores"),
            remedy=Remedy(Risk.NUMERIC, f"Take `{shown}` out.", measure="dynotune profile -- python train.py"),
            also=(launch.place,),
        )
        return


def _asked(launch: Launch, project: Project) -> tuple[Place, str] | None:
    for name in ("cpu", "use_cpu"):
        flag = launch.launcher_flags.get(name)
        if flag is not None and flag.value is True:
            return flag.place, f"--{name}"
    for config in project.configs:
        if config.file in launch.configs and config.kind == "accelerate" and config.at("use_cpu") is True:
            return config.places.get("use_cpu", Place(config.file)), "use_cpu: true"
    return None

"""PyTorch is installed as its build for the CPU, in a project whose image, launcher or documents have a GPU for it."""

import re
from collections.abc import Iterator

from dynotune.audit.facts.asked import on_gpu
from dynotune.audit.facts.cards import CARD
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place

_BUILD = re.compile(
    r"download\.pytorch\.org/whl/(?:nightly/|test/)?cpu\b|\btorch==[\d.]+\+cpu\b|^\s*-?\s*cpuonly\b|\binstall\b.*\bcpuonly\b"
    r"|\bpytorch-cpu\b|--torch-backend[= ]cpu\b"
)
_OF_A_GPU = re.compile(
    r"download\.pytorch\.org/whl/(?:nightly/|test/)?cu\d|\+cu\d{2,3}\b|\bpytorch-cuda\b|torch-backend[= ](?:cu|auto)"
)
_NAMES_ONE = re.compile(
    r"gres=gpu|--gpus|gpus-per|CUDA_VISIBLE_DEVICES=[\"']?\d|FROM\s+nvidia/cuda|nvidia\.com/gpu|driver: nvidia"
    r"|nproc[_-]per[_-](?:node|gpu)[= ]+[2-9]|capabilities: \[gpu\]"
)
_ASIDE = re.compile(r"(?:^|/)(?:tests?|ci|\.github|docs?)(?:/|$)|cpu|test|lint|docs?[._-]|dev[._-]", re.IGNORECASE)
"""Files that install for something else than training."""

_HOST = re.compile(r"\bCPU[- ]only\b|\bon (?:a |the )?(?:CPU|laptop)\b", re.IGNORECASE)


def build_for_the_cpu(project: Project) -> Iterator[Said]:
    if not project.jobs or not any(map(on_gpu, project.jobs)):
        return
    texts = {file: text for file, text in project.texts.items() if not file.endswith((".py", ".ipynb"))}
    every = [*texts.values(), *project.documents.values()]
    named = any(_NAMES_ONE.search(one) or CARD.search(one) for one in every)
    if not named or any(_OF_A_GPU.search(one) for one in every) or any(_HOST.search(one) for one in every):
        return
    for file, text in texts.items():
        if _ASIDE.search(file):
            continue
        for number, line in enumerate(text.split("\n"), 1):
            found = _BUILD.search(line.partition(" #")[0])
            if found is None or line.lstrip().startswith("#") or re.search(r"\$\{|\belse\b|\|\|", line):
                continue
            yield Finding(
                f"`{found[0].strip(' -')}` installs PyTorch's build for the CPU, in a project that has a GPU to train on:"
                " `torch.cuda.is_available()` is false there, and a trainer takes the CPU without a word.",
                place=Place(file, number, 1, number, len(line) + 1),
                evidence=Evidence(Level.TEXT, {"installed from": found[0].strip()}),
                stake=Stake(
                    AtStake.TIME, 0.8, 0.99, "a GPU multiplies matrices tens of times faster than a host's cores"
                ),
                remedy=Remedy(
                    Risk.OPERATIONAL,
                    "Install the build for the image's or the machine's CUDA: leave the index out, which gives it on Linux,"
                    " or name that of the CUDA release (`https://download.pytorch.org/whl/cu126`).",
                    effort=Effort.MINUTES,
                    measure="python -c 'import torch; print(torch.version.cuda)'",
                ),
            )
            return

"""The GPU that a project's own files name, and its memory."""

import re

from dynotune.audit.facts.job import Job
from dynotune.audit.facts.project import Project

GIB = {
    "H200": 141, "GH200": 96, "H100": 80, "B200": 180, "B300": 288, "L40S": 48, "L40": 48, "L4": 24, "A10G": 24,
    "A10": 24, "A30": 24, "A40": 48, "A6000": 48, "A5000": 24, "4090": 24, "3090": 24, "5090": 32, "T4": 16,
    "A100": 0, "V100": 0,
}  # fmt: skip
"""Nominal memory by name; 0: it comes in two sizes, and a file must say which."""

_NAMED = re.compile(
    rf"\b(?:RTX ?)?(?P<name>{'|'.join(sorted(GIB, key=len, reverse=True))})s?\b"
    r"(?:[- ]?(?:SXM\d?|PCIe|NVL|HBM\de?))?(?:(?:[- ,:(]{0,3}| with )(?P<size>\d{2,3}) ?Gi?B?\b)?",
    re.IGNORECASE,
)


def named_card(job: Job, project: Project) -> float | None:
    """GiB of the card that the job's files, the project's launchers or its documents name. None: none, or several kinds."""
    files = {*job.files, *(launch.file for launch in project.launches)}
    texts = [f"{file}\n{project.texts.get(file, '')}" for file in files] + list(project.documents.values())
    sizes: set[float] = set()
    for text in texts:
        for found in _NAMED.finditer(text):
            sizes.add(float(found["size"] or GIB[found["name"].upper()]))
    sizes.discard(0.0)
    return sizes.pop() if len(sizes) == 1 else None

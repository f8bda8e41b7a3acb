"""What releases of trainers want of other packages, by their METADATA or the requirements in their source archives.

- llamafactory 0.9.1 to 0.9.5: the METADATA of their wheels; from 0.9.2 on extras/misc.py also refuses to start with others.
  `deepspeed` is wanted of an extra, and by hparams/parser.py where a DeepSpeed file is given.
- axolotl 0.9.2 and 0.12.2: requirements.txt of the archives, which setup.py hands on; 0.19.0: its METADATA.
"""

from collections.abc import Mapping

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

_BUILT_FOR: Mapping[str, Mapping[str, str]] = {
    "vllm": {
        "2.3.0": "0.4.2 0.5.0 0.5.1",
        "2.3.1": "0.5.3",
        "2.4.0": "0.5.4 0.5.5 0.6.0 0.6.2 0.6.3",
        "2.5.1": "0.6.4 0.6.6 0.7.0 0.7.3",
    },
    "xformers": {
        "2.6.0": "0.0.29.post3",
    },
}
"""Releases that want one PyTorch exactly, by it: their METADATA."""

WANTS: Mapping[tuple[str, str], Mapping[str, str]] = {
    ("axolotl", "0.9.2"): {
        "transformers": "==4.51.3", "trl": "==0.17.0", "peft": "==0.15.2", "accelerate": "==1.6.0",
        "datasets": "==3.5.1", "bitsandbytes": "==0.45.4", "liger-kernel": "==0.5.9", "tokenizers": ">=0.21.1",
    },
    ("axolotl", "0.12.2"): {
        "transformers": "==4.55.2", "trl": "==0.21.0", "peft": "==0.17.0", "accelerate": "==1.10.0",
        "datasets": "==4.0.0", "bitsandbytes": "==0.47.0", "liger-kernel": "==0.6.1", "tokenizers": ">=0.21.1",
    },
    ("axolotl", "0.19"): {
        "transformers": "==5.16.1", "trl": "==1.9.0", "peft": "==0.20.0", "accelerate": "==1.13.0",
    },
    ("llamafactory", "0.9.1"): {
        "transformers": ">=4.41.2,<=4.46.1", "datasets": ">=2.16.0,<=3.1.0", "accelerate": ">=0.34.0,<=1.0.1",
        "peft": ">=0.11.1,<=0.12.0", "trl": ">=0.8.6,<=0.9.6", "numpy": "<2.0.0", "deepspeed": ">=0.10.0,<=0.14.4",
    },
    ("llamafactory", "0.9.2"): {
        "transformers": ">=4.41.2,<=4.49.0,!=4.46.*,!=4.47.*,!=4.48.0", "datasets": ">=2.16.0,<=3.2.0",
        "accelerate": ">=0.34.0,<=1.2.1", "peft": ">=0.11.1,<=0.12.0", "trl": ">=0.8.6,<=0.9.6",
        "tokenizers": ">=0.19.0,<=0.21.0", "numpy": "<2.0.0", "deepspeed": ">=0.10.0,<=0.16.4",
    },
    ("llamafactory", "0.9.3"): {
        "transformers": ">=4.45.0,<=4.52.4,!=4.46.*,!=4.47.*,!=4.48.0,!=4.52.0", "datasets": ">=2.16.0,<=3.6.0",
        "accelerate": ">=0.34.0,<=1.7.0", "peft": ">=0.14.0,<=0.15.2", "trl": ">=0.8.6,<=0.9.6",
        "tokenizers": ">=0.19.0,<=0.21.1", "numpy": "<2.0.0", "pydantic": "<=2.10.6",
        "deepspeed": ">=0.10.0,<=0.16.9",
    },
    ("llamafactory", "0.9.4"): {
        "transformers": ">=4.51.0,<=4.57.1,!=4.52.0,!=4.57.0", "datasets": ">=2.16.0,<=4.0.0",
        "accelerate": ">=1.3.0,<=1.11.0", "peft": ">=0.14.0,<=0.17.1", "trl": ">=0.18.0,<=0.24.0",
        "deepspeed": ">=0.10.0,<=0.16.9",
    },
    ("llamafactory", "0.9.5"): {"transformers": "<=5.6.0"},
    **{
        (package, release): {"torch": f"=={torch}"}
        for package, builds in _BUILT_FOR.items()
        for torch, releases in builds.items()
        for release in releases.split()
    },
}  # fmt: skip
"""By package and release, which stands for its own later ones (`0.19` for 0.19.1, `0.6.3` for 0.6.3.post1), too."""

OF_AN_EXTRA = frozenset({"deepspeed"})
"""Wanted only by who asks for the extra, or uses it."""


def wanted(package: str, version: str) -> Mapping[str, str]:
    """What a release wants of others; empty where it is not known."""
    for (name, release), wants in WANTS.items():
        if name == package and (version == release or version.startswith(f"{release}.")):
            return wants
    return {}


def fits(version: str, wants: str) -> bool:
    """Whether a version is one of those that are wanted. What is no version fits: nothing is known of it."""
    try:
        there = Version(version)
    except InvalidVersion:
        return True
    return SpecifierSet(wants, prereleases=True).contains(there.public.partition("+")[0])

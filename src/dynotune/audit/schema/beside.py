"""What an audited project itself says of its trainers: sources that lie in it, and the versions that it asks for."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from dynotune.audit.regular import leaves, start_of
from dynotune.audit.schema.releases_told import releases_told

_MARKS: Mapping[str, str] = {
    "trl": "trl/trainer/sft_config.py",
    "transformers": "transformers/training_args.py",
    "axolotl": "axolotl/utils/schemas/config.py",
    "llamafactory": "llamafactory/hparams/finetuning_args.py",
    "open_instruct": "open_instruct/finetune.py",
}
"""A file by which the sources of a package are known."""

_ROOMS = ("", "third_party", "third-party", "external", "vendor", "submodules", "libs", "src", "deps", "packages")
_PIN = re.compile(
    r"(?<![\w\-/.])(trl|transformers|axolotl|llamafactory|peft|accelerate)(?:\[[\w,\- ]*\])?\s*(===?|~=|<=|<|@v?)\s*"
    r"['\"]?v?([0-9]+(?:\.[0-9]+)*)",
    re.IGNORECASE,
)
_INSTALLS = re.compile(r"\b(?:pip3?|uv pip) install\b((?:[^\n\\]|\\.|\\\n){1,2000})")
"""A command, over lines that go on."""

_OF_AN_ESTIMATOR = re.compile(r"\btransformers_version\s*=\s*[\"'](\d+(?:\.\d+)*)[\"']")
"""By which SageMaker chooses the image that a script runs in."""

_ASKING = ("requirements*.txt", "requirements/*.txt", "pyproject.toml", "setup.py", "setup.cfg", "environment*.y*ml")
_MAX_BYTES = 1 << 18
_MAX_FOLDERS = 200


def sources_in(root: Path) -> dict[str, Path]:
    """Checkouts and submodules in a project, by package: in it, in its folders, and in those where such things are kept."""
    found: dict[str, Path] = {}
    for folder in _folders(root):
        if leaves(folder, root):
            continue
        for package, mark in _MARKS.items():
            if package not in found and any((folder / start / mark).is_file() for start in ("", "src")):
                found[package] = folder
    return found


def _folders(root: Path) -> Iterator[Path]:
    yield root
    for room in _ROOMS:
        here = root / room
        if not here.is_dir():
            continue
        inner = sorted(path for path in here.iterdir() if path.is_dir() and not path.name.startswith("."))
        yield from inner[:_MAX_FOLDERS]


def versions_asked(root: Path, texts: Mapping[str, str] | None = None) -> dict[str, str]:
    """The version, or the newest, that a project's requirements allow, by package. Open ones are not in it.

    `texts`: other files, whose installing commands (`pip install "trl==0.12"` in a cell or a launcher) ask too; requirements
    go before them.
    """
    found: dict[str, str] = {}
    for pattern in _ASKING:
        for path in [path for path in sorted(root.glob(pattern))[:20] if not leaves(path, root)]:
            for name, operator, version in _PIN.findall(_start(path)):
                # `<0.20`: all before it, which is what `0.20.dev0` stands for among versions.
                found.setdefault(name.lower(), f"{version}.dev0" if operator == "<" else version)
    for text in (texts or {}).values():
        for version in _OF_AN_ESTIMATOR.findall(text) if "sagemaker" in text else ():
            found.setdefault("transformers", version)
    installs = [line for text in (texts or {}).values() if "install" in text for line in _INSTALLS.findall(text)]
    for name, operator, version in _PIN.findall("\n".join(installs)):
        found.setdefault(name.lower(), f"{version}.dev0" if operator == "<" else version)
    for file, text in (texts or {}).items():
        for name, version, _ in releases_told(file, text):
            found.setdefault(name, version)
    return found


def _start(path: Path) -> str:
    try:
        return start_of(path, _MAX_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""

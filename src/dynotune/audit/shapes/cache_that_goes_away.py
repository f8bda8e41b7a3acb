"""Launchers whose cache of prepared data is gone behind each run: in a job's own folder, or inside a container."""

import posixpath
import re
from collections.abc import Iterator, Mapping

from dynotune.audit.facts.asked import given
from dynotune.audit.facts.job import Job, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.place import Place

_SET = re.compile(r"^\s*(?:export\s+)?(?P<name>[A-Za-z_]\w*)=(?P<value>\"[^\"\n]*\"|'[^'\n]*'|[^\s;#]*)", re.MULTILINE)
_CACHES = ("HF_DATASETS_CACHE", "HF_HOME", "XDG_CACHE_HOME")
_VARIABLE = re.compile(r"\$\{?(\w+)\}?")
_OF_ONE_RUN = re.compile(
    r"\$\{?(?:SLURM_JOB_?ID|SLURM_TMPDIR|PBS_JOBID|LSB_JOBID|JOB_ID|TMPDIR|RANDOM)\b|\$\$|\$\(mktemp|\$\(date"
)
_REMOVES = re.compile(r"\brm -\w*r\w*\s+(?:--\s+)?[\"']?(?P<path>[^\s\"';]+)")
_STAGED = re.compile(r"(?m)^\s*(?:srun\s+[^\n]*?)?(?:cp|rsync|tar|unzip|mv)\b[^\n]*")
"""A job that copies the cache into its folder first has it."""

_MOST = 6


def of_one_run(text: str) -> Iterator[tuple[str, int]]:
    """`export HF_DATASETS_CACHE=$SCRATCH/hf`, where the folder has the job's number or is removed: what stands there, and
    its line."""
    held: dict[str, str] = {}
    removed = {found["path"] for found in _REMOVES.finditer(text)}
    for found in _SET.finditer(text):
        value = found["value"].strip("\"'")
        name = found["name"]
        if name in _CACHES:
            whole = _filled(value, held)
            under = any(_filled(one, held).rstrip("/*") and _is_under(whole, _filled(one, held)) for one in removed)
            if (_OF_ONE_RUN.search(whole) or under) and not is_staged(text, name, value):
                yield found[0].strip(), text.count("\n", 0, found.start("name")) + 1
        held[name] = value


def is_staged(text: str, name: str, value: str) -> bool:
    """Whether the job copies something into the folder that a variable names."""
    return any(f"${name}" in line or f"${{{name}}}" in line or value in line for line in _STAGED.findall(text))


def _filled(value: str, held: Mapping[str, str]) -> str:
    for _ in range(_MOST):
        filled = _VARIABLE.sub(lambda found: held.get(found[1], found[0]), value)
        if filled == value or len(filled) > 1_000:
            break
        value = filled
    return value


def _is_under(path: str, folder: str) -> bool:
    folder = folder.rstrip("/*")
    return len(folder) > 1 and (path == folder or path.startswith(f"{folder}/"))


_RUN = re.compile(r"\b(?:docker|podman|nerdctl)\s+run\b(?:\\\n|[^\n])*")
_VOLUME = re.compile(
    r"(?:-v|--volume)[= ]\s*[\"']?[^\s:\"']+[\"']?:(?P<there>/[^\s:\"']*)|(?:target|dst|destination)=(?P<mount>/[^\s,\"']+)"
)
_FOLDER = re.compile(r"(?:-w|--workdir)[= ]\s*[\"']?(?P<there>/[^\s\"']*)")
_HOME = re.compile(r"(?:-e|--env)[= ]\s*[\"']?(?:HF_HOME|HF_DATASETS_CACHE|XDG_CACHE_HOME)=(?P<there>[^\s\"']+)")
_HOME_OF_IMAGE = re.compile(
    r"(?im)^\s*ENV\b[^\n]*\b(?:HF_HOME|HF_DATASETS_CACHE|XDG_CACHE_HOME)[= ]\s*[\"']?(?P<there>/[^\s\"']+)"
)
_PREPARES = re.compile(r"load_dataset\(")
_WORKS = re.compile(r"\.map\(|SFTTrainer\(|DPOTrainer\(")
_KEEPS = re.compile(r"save_to_disk|load_from_disk|cache_dir|HF_HOME|HF_DATASETS_CACHE|cache_file_name|streaming")


def _homes_of_images(project: Project) -> list[str]:
    """Where images put the cache."""
    return [one["there"] for text in project.texts.values() for one in _HOME_OF_IMAGE.finditer(text)]


def of_containers(project: Project) -> Iterator[tuple[str, Place, tuple[Place, ...]]]:
    """`docker run --rm` of what prepares rows, with no volume under them or under the cache."""
    for file, text in project.texts.items():
        for found in _RUN.finditer(text) if "--rm" in text else ():
            command = found[0].replace("\\\n", " ")
            if not re.search(r"\s--rm\b", command):
                continue
            kept = [one["there"] or one["mount"] for one in _VOLUME.finditer(command)]
            if "--env-file" in command:
                continue  # where the cache is may stand there
            homes = (
                [one["there"] for one in _HOME.finditer(command)]
                or _homes_of_images(project)
                or ["/root/.cache/huggingface/datasets"]
            )
            if any(_is_under(home, one) or _is_under(one, "/root/.cache") for home in homes for one in kept):
                continue
            if any(re.match(r"/home/[^/]+(?:/\.cache.*)?$", one) for one in kept):
                continue  # whose home it is there, is the image's
            also = _prepares(command, kept, project)
            if also is not None:
                place = Place(file, text.count("\n", 0, found.start()) + 1)
                yield "`docker run --rm` without a volume for the cache or the prepared rows", place, also


def _prepares(command: str, kept: list[str], project: Project) -> tuple[Place, ...] | None:
    """Where it is said what is prepared, in a folder that is none of those that are kept; None: nothing, or it is kept."""
    for job in project.jobs:
        if job.trainer is Trainer.AXOLOTL and _names(command, job):
            key = given(job, "dataset_prepared_path")
            path = str(key.value) if key is not None and key.value else "last_run_prepared"
            folder = _FOLDER.search(command)
            at = posixpath.join(folder["there"] if folder is not None else "/workspace/axolotl", path)
            lost = not any(_is_under(posixpath.normpath(at), one) for one in kept)
            return ((key.place,) if key is not None else (job.home,)) if lost else None
    for script in project.scripts:
        name = script.file.rpartition("/")[2]
        if re.search(rf"[\s/\"']{re.escape(name)}\b", command) and _PREPARES.search(script.source):
            works = _WORKS.search(script.source) is not None and not _KEEPS.search(script.source)
            return next(((call.place,) for call in script.calls_of("load_dataset")), ()) if works else None
    return None


def _names(command: str, job: Job) -> bool:
    return any(re.search(rf"[\s/\"']{re.escape(file.rpartition('/')[2])}\b", command) for file in job.files) and (
        "axolotl" in command
    )

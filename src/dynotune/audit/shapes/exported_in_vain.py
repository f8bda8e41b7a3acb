"""A launcher exports a setting of training, and the program that it starts reads the environment by other names."""

import re
from collections.abc import Iterator

from dynotune.audit.facts.launch import Launch
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.together import code, connected, leads_out
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.shapes.flags_by_another_name import meant_by

_SETTING = re.compile(
    r"LR|LEARNING_RATE|(?:NUM_|N_|TRAIN_)?EPOCHS|(?:TRAIN_|MICRO_|PER_DEVICE_)?BATCH_SIZE|BS|MAX_(?:SEQ_)?LEN(?:GTH)?"
    r"|SEQ_LEN|WARMUP(?:_STEPS|_RATIO)?|WEIGHT_DECAY|(?:GRAD(?:IENT)?_)?ACCUM\w*|LORA_(?:R|RANK|ALPHA|DROPOUT)|SEED"
    r"|MAX_STEPS|MODEL(?:_NAME|_ID|_PATH)?|BASE_MODEL|DATASET|DATA_PATH|OUTPUT_DIR"
)
_WHOLE = re.compile(
    r"environ\.(?:items|keys|copy)|(?:dict|list|sorted|set)\(os\.environ|\*\*os\.environ|\bin os\.environ:"
    r"|(?:environ(?:\.get)?|getenv)\s*[\[(]\s*(?:[fF][\"']|[a-z_])|BaseSettings|auto_envvar_prefix|AutoEnv|\bEnvPrefix"
)
"""What may read any variable: all of them, one whose name is put together, or fields of a class."""

_READS = re.compile(r"(?:environ(?:\.get)?|getenv|env(?:\.\w+)?)\s*[\[(]\s*[\"']([A-Z][A-Z0-9_]*)[\"']")


def exported_in_vain(launch: Launch, script: Script, project: Project) -> Iterator[Said]:
    asked = {name: setting for name, setting in launch.variables.items() if _SETTING.fullmatch(name)}
    if not asked or "envsubst" in project.texts.get(launch.file, ""):
        return  # which fills any variable into a file
    near = connected(script, project)
    read = {name for one in near for name in _READS.findall(code(one))}
    if not read or leads_out(near, project) or any(_WHOLE.search(code(one)) for one in near):
        return
    for name, setting in asked.items():
        if name in read or _is_used(name, project):
            continue
        close = meant_by(name.lower(), {one.lower() for one in read}).upper()
        yield Finding(
            f"`{name}` is exported, and no line of the project reads it"
            f"{f': `{launch.script}` reads `{close}`' if close else f': `{launch.script}` runs with its own value'}.",
            place=_where(name, setting.place, project),
            evidence=Evidence(Level.TEXT, {"exported": name, "read": sorted(read)[:8]}),
            stake=Stake(AtStake.RESULT),
            remedy=Remedy(
                Risk.BEHAVIOURAL,
                f"Export `{close}`." if close else "Read it where it was meant to work, or take it out.",
            ),
        )


def _is_used(name: str, project: Project) -> bool:
    """Its name stands somewhere but where it gets its value."""
    word, sets = re.compile(rf"\b{name}\b"), re.compile(rf"\b{name}=")
    of_yaml = re.compile(rf"^\s*(?:-\s*)?[\"']?{name}[\"']?\s*[:=]", re.MULTILINE)
    return any(
        word.search((of_yaml if file.endswith((".yml", ".yaml")) else sets).sub("=", text))
        for file, text in project.texts.items()
        if file not in project.documents
    )


def _where(name: str, place: Place, project: Project) -> Place:
    """Of a service's, the line of its `environment` that has the name."""
    if not place.file.endswith((".yml", ".yaml")):
        return place
    lines = project.texts.get(place.file, "").split("\n")
    row = next((at for at, line in enumerate(lines, 1) if re.match(rf"\s*(?:-\s*)?[\"']?{name}[\"']?\s*[:=]", line)), 0)
    return Place(place.file, row, key=name) if row else place

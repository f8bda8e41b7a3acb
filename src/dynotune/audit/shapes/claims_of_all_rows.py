"""A document says that a run takes all of its data, and every command or configuration that starts one takes a part."""

import re
from collections.abc import Iterator, Mapping

from dynotune.audit.facts.launch import Launch
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.together import code, reached
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.shapes.flags_that_nothing_reads import TRAINS

_NAMES = (
    "max_samples max_train_samples max_train_examples num_train_samples num_train_examples train_subset_size max_examples"
    " dataset_num_samples train_samples_limit limit_train_samples subset_size"
)
_LIMITS = frozenset(_NAMES.split())
_ROWS = (
    r"(?:rows|examples|samples|dialogues?|dialogs|conversations|records|documents|pairs|tickets|questions|instructions)"
)
_ALL = (
    r"(?:(?:full|whole|entire|complete) (?:train(?:ing)? )?(?:data ?set|set|data|corpus|collection|split)\b"
    rf"|all (?:of )?(?:the |its |our )?(?:(?P<number>\d[\d,.]*)\s?(?P<unit>[kM]?) )?(?:train(?:ing)? )?{_ROWS}\b)"
)
_TRAINED_ON = re.compile(
    r"\b(?:trains?|trained|fine-?tune[sd]?|epochs?|(?:training|fine-?tuning|the job|(?:an|each|every|one) epoch)"
    r" (?:runs?|goes|pass(?:es)?))"
    rf"\s(?:on|over|through)\s(?:the |its |our )?(?P<all>{_ALL})",
    re.IGNORECASE,
)
"""One phrase of what is trained on: elsewhere in a sentence "all rows" are padded, shuffled, counted or logged."""

_NO_LIMIT = 10**6
"""Rows from which a limit is one that nothing comes to."""

_EVALUATES = re.compile(r"eval|test|predict|infer|scor|generat|merge|export|serve|chat|prepar|preproc", re.IGNORECASE)
_OTHERWISE = re.compile(
    r"\b(?:not?|never|without|if|could|would|should|can|may|might|was|were|had|previous\w*|earlier|paper|instead|until"
    r"|unless|for the|to (?:train|run|use)|remove|drop|evaluat\w*|test\w*|valid\w*|token\w*|download\w*|publish\w*|later"
    r"|todo|plan\w*)\b"
    r"|n't\b|\?",
    re.IGNORECASE,
)
_CLAUSE = re.compile(r"(?<=[a-z)\d])[.;:](?=\s|$)|,\s|\s(?:and|but|while|whereas|so)\s|\n\s*\n|\n(?=\s*[-*#|>])")


def claims_of_all_rows(project: Project) -> Iterator[Said]:
    if any(one.file.endswith(".ipynb") and TRAINS.search(code(one)) for one in project.scripts):
        return  # the text may be the notebook's
    limits = [_limit(launch, project) for launch in project.launches if _may_train(launch, project)]
    known = [limit for limit in limits if limit is not None]
    if not known or len(known) < len(limits) or len({key for key, _, _ in known}) > 1:
        return
    key, rows, place = max(known, key=lambda limit: limit[1])
    if rows >= _NO_LIMIT:
        return
    most = "" if len({limit for _, limit, _ in known}) == 1 else "at most "
    for file, text in project.documents.items():
        if re.search(r"change|history|news|notes|todo|log|contribut", file.rpartition("/")[2], re.IGNORECASE):
            continue
        at = 0
        for clause in _CLAUSE.split(text):
            at = text.find(clause, at)
            found = _TRAINED_ON.search(clause)
            if found is None or _OTHERWISE.search(clause) or 0 < _number(found) <= rows:
                continue
            yield Finding(
                f"`{' '.join(found['all'].split())}`, says `{file}`, and `{key}` is {most}{rows:,} in every run: it trains"
                " on a part.",
                place=place,
                also=(Place(file, text.count("\n", 0, at + found.start("all")) + 1),),
                evidence=Evidence(Level.TEXT, {"claimed": found["all"], key: rows}),
                stake=Stake(AtStake.RESULT),
                remedy=Remedy(Risk.BEHAVIOURAL, f"Take `{key}` out, or mend the text."),
            )
            return


def _may_train(launch: Launch, project: Project) -> bool:
    """A command that trains, as far as is known: of a script of the project it is."""
    if not launch.script:
        return bool(launch.configs) and not any(one.isalpha() and _EVALUATES.match(one) for one in launch.words)
    script = next((one for one in project.scripts if one.file == launch.script), None)
    if script is None:
        return True
    evaluates = _EVALUATES.search(launch.script.rpartition("/")[2])
    near = [script] if evaluates else reached(script, project)
    return any(TRAINS.search(code(one)) for one in near)


def _number(found: re.Match[str]) -> float:
    """The rows that the phrase counts; 0: none."""
    digits = re.sub(r"\D", "", found["number"]) if found["number"] and not found["unit"] else ""
    if digits:
        return int(digits)
    scale = {"k": 1_000, "m": 1_000_000}.get((found["unit"] or "").lower(), 0)
    return float(found["number"].replace(",", "").rstrip(".")) * scale if scale else 0


def _limit(launch: Launch, project: Project) -> tuple[str, int, Place] | None:
    """The key by which a command, or a configuration that it names, takes so many rows alone."""
    for name, setting in launch.flags.items():
        if name in _LIMITS:
            whole = isinstance(setting.value, int) and not isinstance(setting.value, bool) and setting.value > 0
            return (name, setting.value, setting.place) if whole else None
    for config in project.configs:
        if config.file not in launch.configs or not isinstance(config.values, Mapping):
            continue
        for key, value in config.values.items():
            if key in _LIMITS and isinstance(value, int) and not isinstance(value, bool) and value > 0:
                return str(key), value, config.places.get(str(key), Place(config.file, 1))
    return None

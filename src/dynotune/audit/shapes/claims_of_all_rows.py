"""A document says that a run takes all of its data, and every command or configuration that starts one takes a part."""

import re
from collections.abc import Iterator, Mapping

from dynotune.audit.facts.launch import Launch
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place

_NAMES = (
    "max_samples max_train_samples max_train_examples num_train_samples num_train_examples train_subset_size max_examples"
    " dataset_num_samples train_samples_limit limit_train_samples subset_size"
)
_LIMITS = frozenset(_NAMES.split())
_ROWS = (
    r"(?:rows|examples|samples|dialogues?|dialogs|conversations|records|documents|pairs|tickets|questions|instructions)"
)
_ALL = re.compile(
    r"\b(?:full|whole|entire|complete) (?:train(?:ing)? )?(?:data ?set|set|data|corpus|collection|split)\b"
    rf"|\ball (?:of )?(?:the |its |our )?(?:\d[\d,.]*\s?[kM]? )?(?:\w+ )?{_ROWS}\b",
    re.IGNORECASE,
)
_TRAINS = re.compile(
    r"\b(?:train(?:s|ed|ing)?|runs?|epochs?|pass(?:es)?|fine-?tun\w+|tun(?:ed|es|ing)|job|sees)\b", re.IGNORECASE
)
_OTHERWISE = re.compile(
    r"\b(?:not?|never|without|if|could|would|should|can|may|might|was|were|had|previous\w*|earlier|paper|instead|until"
    r"|unless|for the|to (?:train|run|use)|remove|drop|evaluat\w*|test\w*|valid\w*|token\w*|download\w*|publish\w*|later"
    r"|todo|plan\w*)\b"
    r"|n't\b|\?",
    re.IGNORECASE,
)
_CLAUSE = re.compile(r"(?<=[a-z)\d])[.;:](?=\s|$)|,\s|\s(?:and|but|while|whereas|so)\s|\n\s*\n|\n(?=\s*[-*#|>])")


def claims_of_all_rows(project: Project) -> Iterator[Said]:
    starts = [launch for launch in project.launches if launch.script or launch.configs]
    limits = [_limit(launch, project) for launch in starts]
    if not limits or any(limit is None for limit in limits):
        return
    key, rows, place = next(limit for limit in limits if limit is not None)
    for file, text in project.documents.items():
        if re.search(r"change|history|news|notes|todo|log|contribut", file.rpartition("/")[2], re.IGNORECASE):
            continue
        at = 0
        for clause in _CLAUSE.split(text):
            at = text.find(clause, at)
            found = _ALL.search(clause)
            if found is None or not _TRAINS.search(clause) or _OTHERWISE.search(clause):
                continue
            yield Finding(
                f"`{' '.join(found[0].split())}`, says `{file}`, and `{key}` is {rows:,} in every run: it trains on a part.",
                place=place,
                also=(Place(file, text.count("\n", 0, at + found.start()) + 1),),
                evidence=Evidence(Level.TEXT, {"claimed": found[0], key: rows}),
                stake=Stake(AtStake.RESULT),
                remedy=Remedy(Risk.BEHAVIOURAL, f"Take `{key}` out, or mend the text."),
            )
            return


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

"""Which rules run: `--select` and `--ignore`, by code, family or name."""

import difflib
from collections.abc import Iterator, Mapping, Sequence

from dynotune.audit.judging.called import Past, is_known, meant_by, past_of, spelt
from dynotune.audit.registry import heirs
from dynotune.audit.rule import FAMILIES, Rule
from dynotune.errors import ConfigError
from dynotune.printable import printable


def chosen(rules: Mapping[str, Rule], select: Sequence[str], ignore: Sequence[str]) -> Mapping[str, Rule]:
    """The rules that run. select: none means all. Words may hold several, with commas. Raises `ConfigError`."""
    wanted = codes_of(rules, select, "--select") if _words(select) else set(rules)
    wanted -= codes_of(rules, ignore, "--ignore")
    if not wanted:
        gone = "".join(f" {sentence}" for sentence in on_words(select, "--select"))
        raise ConfigError(f"`--select` and `--ignore` leave no rule to check.{gone} `dynotune rule` lists them.")
    return {code: rule for code, rule in rules.items() if code in wanted}


def codes_of(rules: Mapping[str, Rule], words: Sequence[str], flag: str) -> set[str]:
    """What words mean: `OPT001`, `OPT`, `unfused-optimizer`. Raises `ConfigError`."""
    found: set[str] = set()
    for word in _words(words):
        if not is_known(word):
            known = [*rules, *FAMILIES, *(rule.name for rule in rules.values())]
            near = difflib.get_close_matches(word.upper(), known, 1) or difflib.get_close_matches(word, known, 1)
            hint = f" Did you mean `{near[0]}`?" if near else ""
            raise ConfigError(
                f"`{flag}`: no rule or family is called {printable(word)}.{hint} `dynotune rule` lists them."
            )
        found |= meant_by(word)
    return found


def on_words(words: Sequence[str], flag: str) -> Iterator[str]:
    """What is to be said of codes and names that mean something else than they did: sentences."""
    for word in dict.fromkeys(spelt(word) for word in _words(words)):
        match past_of(word):
            case Past.PART_OF_ANOTHER:
                yield f"`{flag}`: {word} is a part of {heirs()[word]} now, and all of that is {_THEN[flag]}."
            case Past.GONE:
                yield f"`{flag}`: there is no rule {word} any more."


_THEN = {"--select": "checked", "--ignore": "left out", "dynotune rule": "shown"}


def _words(given: Sequence[str]) -> list[str]:
    return [word for text in given for word in text.replace(",", " ").split()]

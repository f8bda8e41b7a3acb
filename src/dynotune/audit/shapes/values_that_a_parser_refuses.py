"""A command whose words argparse refuses though each flag is known: a value behind a switch, none of the choices, no number,
a flag that must be given. And a word that `type=bool` turns round."""

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dynotune.audit.facts.launch import Launch
from dynotune.audit.place import Place
from dynotune.audit.read.launchers.accepts import Accepts

_SWITCHES = frozenset({"store_true", "store_false", "store_const", "append_const", "count"})
_OPEN = re.compile(r"[$*@`{<]")
"""Of a word that is something else when the command runs."""

_FALSE = frozenset({"false", "no", "0", "none", "off", "f", "n"})
_BY_ITSELF = frozenset({"help", "version"})


@dataclass(frozen=True, slots=True)
class Refused:
    flag: str
    """As the parser has it; of what stands without one, its name."""

    why: str
    """What follows the flag in a sentence."""

    places: tuple[Place, ...] = ()
    """Where it is given, if not by a word of the command."""


@dataclass(frozen=True, slots=True)
class _Option:
    names: tuple[str, ...]
    places: int | str
    """Words behind it: a number, or `?`, `*`, `+`."""

    choices: frozenset[str]
    kind: str
    """`int`, `float`, `bool`; empty: any other."""

    required: bool


def refused_values(launch: Launch, taken: Accepts, torch: tuple[int, ...] | None) -> Iterator[Refused]:
    """What the parser stops at; nothing where a word or an option cannot be told. torch: the version that is asked for."""
    if taken.closed and (options := options_of(taken.adds)):
        reader = _Reader(options)
        reader.open = launch.file.endswith((".py", ".ipynb"))  # which may add words of its own
        yield from reader.refused(launch.behind)
        if reader.whole:
            yield from _of_the_launcher(launch, options, torch)


def turned_round(launch: Launch, taken: Accepts) -> Iterator[Refused]:
    """Flags whose `type=bool` makes True of the word that says no."""
    if options := options_of(taken.adds):
        reader = _Reader(options)
        list(reader.refused(launch.behind))
        yield from reader.turned


def _of_the_launcher(launch: Launch, options: Sequence[_Option], torch: tuple[int, ...] | None) -> Iterator[Refused]:
    """The rank that deepspeed's launcher, and PyTorch's old one, put among the script's words."""
    names = {name for one in options for name in one.names}
    if launch.launcher.split(" ")[-1] == "deepspeed" and not {"no_local_rank", "no-local-rank"} & set(
        launch.launcher_flags
    ):
        if not {"--local_rank", "--local-rank"} & names:
            yield Refused("--local_rank", "is put among the script's words by `deepspeed`, and the parser has none")
        elif "--local_rank" not in names:
            yield Refused("--local_rank", "is what `deepspeed` passes, and the parser has `--local-rank` alone")
    if "torch.distributed.launch" in launch.words and "use_env" not in launch.launcher_flags:
        passed = "--local_rank" if torch is not None and torch < (2,) else "--local-rank"
        if passed not in names:
            yield Refused(
                passed, "is put among the script's words by `torch.distributed.launch`, and the parser has none"
            )


class _Reader:
    def __init__(self, options: Sequence[_Option]) -> None:
        self.named = {name: one for one in options for name in one.names if name.startswith("-")}
        self.alone = [one for one in options if not one.names[0].startswith("-")]
        self.turned: list[Refused] = []
        self.open = False
        """A word may be several, or a flag."""

        self.whole = True
        """Every word was looked at."""

        self.left: list[str] = []
        """Words that no option has taken."""

        self.behind: dict[str, str] = {}
        """The flag in front of such a word."""

    def refused(self, words: Sequence[str]) -> Iterator[Refused]:
        rest = list(words)
        given: set[_Option] = set()
        before = ""
        while rest:
            word = rest.pop(0)
            if word == "--":
                self.whole = False
                return
            if not re.match(r"--?[A-Za-z]", word):
                self.open = self.open or bool(_OPEN.search(word))
                self.left.append(word)
                self.behind[word] = before
                continue
            name, equals, value = word.partition("=")
            option = self._option(name)
            if option is None and name.lstrip("-") in {one.names[0] for one in self.alone}:
                self.whole = False
                yield Refused(name, f"is no flag: `{name.lstrip('-')}` is given as a word alone")
                return
            if option is None or name in ("-h", "--help"):
                self.whole = False
                return  # said of the flag
            given.add(option)
            before = name
            taken = self._values(option, [value] if equals else None, rest)
            yield from self._behind(option, name, taken, bool(equals))
        if not self.open:
            yield from self._missing(given)

    def _option(self, name: str) -> _Option | None:
        if name in self.named:
            return self.named[name]
        fits = {one for flag, one in self.named.items() if flag.startswith("--") and flag.startswith(name)}
        return fits.pop() if len(fits) == 1 and name.startswith("--") else None

    def _values(self, option: _Option, here: list[str] | None, rest: list[str]) -> list[str]:
        """The words that it takes, out of the rest."""
        if here is not None:
            return here
        most = option.places if isinstance(option.places, int) else 1 if option.places == "?" else len(rest)
        found: list[str] = []
        while rest and len(found) < most and not re.match(r"--?[A-Za-z]|--$", rest[0]):
            found.append(rest.pop(0))
        return found

    def _behind(self, option: _Option, name: str, values: list[str], joined: bool) -> Iterator[Refused]:
        if any(_OPEN.search(value) for value in values):
            return
        if option.places == 0 and joined:
            yield Refused(name, f"is a switch and takes no value, `{values[0]}` among them")
        elif (isinstance(option.places, int) and len(values) < option.places) or (option.places == "+" and not values):
            yield Refused(name, "needs a value, and none stands behind it")
        for value in values:
            if option.choices and value not in option.choices:
                yield Refused(name, f"takes {_either(option.choices)}, and is given `{value}`")
            elif option.kind in ("int", "float") and not _is_number(value, option.kind):
                yield Refused(
                    name, f"takes {'a whole number' if option.kind == 'int' else 'a number'}, and is given `{value}`"
                )
            elif option.kind == "bool" and value.lower() in _FALSE:
                self.turned.append(Refused(name, value))

    def _missing(self, given: set[_Option]) -> Iterator[Refused]:
        lacking = [one for one in self.named.values() if one.required and one not in given]
        for one in dict.fromkeys(lacking):
            yield Refused(one.names[-1], "must be given, and is not")
        least = sum(one.places if isinstance(one.places, int) else int(one.places == "+") for one in self.alone)
        if len(self.left) < least:
            yield Refused(self.alone[len(self.left)].names[0], "must be given, and is not")
        most = least if all(isinstance(one.places, int) for one in self.alone) else None
        if most is not None and len(self.left) > most:
            word, flag = self.left[most], self.behind.get(self.left[most], "")
            option = self._option(flag) if flag else None
            takes = "is a switch and takes no value" if option and option.places == 0 else "takes no more than one word"
            yield Refused(flag or word, f"{takes}, and `{word}` stands behind it" if flag else "stands for nothing")


def options_of(adds: Sequence[ast.Call]) -> list[_Option]:
    """Of all calls; none where one of them cannot be told, for it may take any word."""
    found = [_option(call) for call in adds]
    return [one for one in found if one is not None] if all(one is not None for one in found) else []


def _option(call: ast.Call) -> _Option | None:
    names = tuple(one.value for one in call.args if isinstance(one, ast.Constant) and isinstance(one.value, str))
    given = {one.arg: one.value for one in call.keywords}
    if not names or len(names) < len(call.args) or None in given:
        return None
    action = _text(given["action"]) if "action" in given else "store"
    places = given.get("nargs")
    if action in _SWITCHES or action in _BY_ITSELF or "BooleanOptionalAction" in action:
        behind: int | str = 0
        if "Optional" in action:
            names = (*names, *(f"--no-{name[2:]}" for name in names if name.startswith("--")))
    elif action not in ("store", "append", "extend"):
        return None
    elif places is None:
        behind = 1
    elif (
        isinstance(places, ast.Constant) and isinstance(places.value, int | str) and places.value not in ("...", "A...")
    ):
        behind = places.value
    else:
        return None
    kind = _text(given["type"]) if "type" in given else ""
    return _Option(
        names,
        behind,
        _choices(given.get("choices"), kind),
        kind if kind in ("int", "float", "bool") else "",
        isinstance(given.get("required"), ast.Constant) and _text(given["required"]) == "True",
    )


def _choices(node: ast.expr | None, kind: str) -> frozenset[str]:
    """Words to choose from; empty: any, or not known."""
    listed = node.elts if isinstance(node, ast.List | ast.Tuple | ast.Set) else []
    texts = [str(one.value) for one in listed if isinstance(one, ast.Constant)]
    return frozenset(texts) if texts and len(texts) == len(listed) and kind in ("", "str", "int") else frozenset()


def _either(choices: frozenset[str]) -> str:
    return " or ".join(f"`{one}`" for one in sorted(choices)[:6])


def _text(node: ast.expr) -> str:
    return str(node.value) if isinstance(node, ast.Constant) else ast.unparse(node)


def _is_number(text: str, kind: str) -> bool:
    try:
        int(text) if kind == "int" else float(text)
    except ValueError:
        return False
    return True

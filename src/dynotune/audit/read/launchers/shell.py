"""The commands of a shell script in their order, variables filled in where reading alone can tell them.

tree-sitter parses; nothing is run. What stays unknown is left in the words as `${NAME}`.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import tree_sitter

from dynotune.audit.place import Place
from dynotune.audit.read.launchers.slurm import directives, gpus_of_a_node
from dynotune.audit.shell_grammar import parse_shell, text_of

MAX_COMMANDS = 2_000
MAX_WORDS = 20_000
MAX_DEPTH = 60
_CALLS = 8
"""Functions that call functions are followed this deep."""

_DEFAULTED = re.compile(r"\$\{(\w+):?[-=](\d+)\}")
_OPEN = re.compile(r"\$\{[^}]*\}")
_HERE = "${HERE}"
"""How a path to the script's own folder is written in words."""


@dataclass(frozen=True, slots=True)
class Word:
    text: str
    place: Place

    @property
    def is_known(self) -> bool:
        return _OPEN.search(self.text) is None


@dataclass(frozen=True, slots=True)
class Command:
    words: tuple[Word, ...]
    place: Place
    variables: Mapping[str, Word]
    """Of the environment, set in front of it or exported before."""

    folder: str
    """Where a `cd` before it went, as written; empty: nowhere."""

    perhaps: Mapping[str, Sequence[Word]] = field(default_factory=dict)
    """Of variables in its words that stayed unknown: what branches before it put into them."""


@dataclass
class _State:
    values: dict[str, list[Word]] = field(default_factory=dict)
    exported: dict[str, Word] = field(default_factory=dict)
    exports_all: bool = False
    """Behind `set -a`: what is assigned is exported."""

    functions: "dict[str, tuple[Shell, tree_sitter.Node]]" = field(default_factory=dict)
    called: set[str] = field(default_factory=set)
    perhaps: dict[str, list[Word]] = field(default_factory=dict)
    """What branches put into a variable, of which each may hold or not."""

    taken: dict[str, Word] = field(default_factory=dict)
    """What sourced files assigned."""

    folder: str = ""
    branches: int = 0
    calls: int = 0
    sourced: "Callable[[str, str], tuple[str, str] | None]" = lambda name, folder: None
    """The place and the text of a file that is taken in by `source`, by its name and the folder."""


def _of_slurm(file: str, text: str) -> dict[str, list[Word]]:
    """Variables that Slurm sets in a job, by what its file asks for."""
    asked = directives(text)
    gpus, nodes = gpus_of_a_node(asked), asked.get("--nodes")
    found: dict[str, list[Word]] = {}
    if gpus is not None:
        word = Word(str(gpus[0]), Place(file, asked[gpus[1]][1], key=gpus[1]))
        found |= {name: [word] for name in ("SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE")}
    if nodes is not None and nodes[0].isdigit():
        word = Word(nodes[0], Place(file, nodes[1], key="--nodes"))
        found |= {name: [word] for name in ("SLURM_NNODES", "SLURM_JOB_NUM_NODES")}
    return found


_DEFAULTS = frozenset({":-", "-", ":=", "=", ":?", "?", ":+", "+"})

MOST_PERHAPS = 200
"""Words of one variable."""

MOST_TURNS = 32
"""Of a loop over configurations."""


_IN_A_SHELL = re.compile(r"(?:/\S*/)?(?:ba|z)?sh")


def _hands_on(words: Sequence[str]) -> bool:
    """The last word is a command for another shell, here, in a container or on another machine: `bash -c "..."` behind
    whatever starts it, `ssh host "..."`, `gcloud compute ssh vm --command "..."`."""
    if words[0] == "ssh" or (words[0] in ("gcloud", "az") and "ssh" in words[1:4]):
        return True
    if words[0] == "srun" and any(word in ("-c", "-lc") for word in words):
        return True
    pairs = zip(words[-3:-1], words[-2:], strict=False)
    return any(_IN_A_SHELL.fullmatch(one) and flag in ("-c", "-lc", "-ec", "-exc", "-euc") for one, flag in pairs)


class Shell:
    """One script. `line_of` gives the file's line of a line of the text, where these differ (Makefiles)."""

    def __init__(self, file: str, text: str, lines: Mapping[int, int] | None = None) -> None:
        self.file = file
        self.lines = lines
        self.source = text.encode()
        self.state = _State(values=_of_slurm(file, text) if "#SBATCH" in text else {})
        self.count = self.size = 0

    def commands(self) -> Iterator[Command]:
        """In order; functions where they are called, those that nobody calls at the end."""
        yield from self._walk(parse_shell(self.source), 0)
        for name, (shell, body) in list(self.state.functions.items()):
            if name not in self.state.called:
                yield from shell._walk(body, 0)

    def _walk(self, node: tree_sitter.Node, depth: int) -> Iterator[Command]:
        if depth > MAX_DEPTH or self.count > MAX_COMMANDS or self.size > MAX_WORDS:
            return
        kind = node.type
        if kind == "variable_assignment":
            self._assign(node)
        elif kind == "declaration_command":
            self._declare(node)
        elif kind == "function_definition":
            name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
            if name is not None and body is not None:
                self.state.functions[self._text(name)] = self, body
        elif kind == "command":
            yield from self._command(node, depth)
        elif kind == "for_statement":
            yield from self._for(node, depth)
        elif kind in ("if_statement", "case_statement", "while_statement", "elif_clause", "else_clause", "case_item"):
            self.state.branches += 1
            for child in node.named_children:
                yield from self._walk(child, depth + 1)
            self.state.branches -= 1
        elif kind == "redirected_statement":
            yield from self._redirected(node, depth)
        elif kind in ("subshell", "command_substitution"):
            folder = self.state.folder
            for child in node.named_children:
                yield from self._walk(child, depth + 1)
            self.state.folder = folder
        elif kind != "comment":
            for child in node.named_children:
                yield from self._walk(child, depth + 1)

    def _for(self, node: tree_sitter.Node, depth: int) -> Iterator[Command]:
        variable, body = node.child_by_field_name("variable"), node.child_by_field_name("body")
        if variable is not None:
            # Each value in turn: one of several, so not known, but where each is another configuration.
            name = self._text(variable)
            values = [child for child in node.named_children if child not in (variable, body)]
            words = [word for child in values for word in self._words(child)]
            if body is not None and 1 < len(words) <= MOST_TURNS and self._names_files(name, words, body):
                for word in words:
                    self.state.values[name] = [word]
                    yield from self._walk(body, depth + 1)
                return
            if len(words) == 1:
                self.state.values[name] = words
            else:
                self.state.values[name] = [Word(f"${{{name}}}", self._place(variable))]
        if body is not None:
            yield from self._walk(body, depth + 1)

    def _names_files(self, name: str, words: list[Word], body: tree_sitter.Node) -> bool:
        """The loop goes over configurations, by name or by parts of names. A sweep over other values is one command."""
        if any("$" in word.text or "*" in word.text for word in words):
            return False
        uses = rf"\$\{{?{re.escape(name)}\}}?"
        files = all(word.text.endswith((".yaml", ".yml", ".json")) for word in words)
        return files or bool(re.search(rf"{uses}[\w.-]*\.(ya?ml|json)\b", self._text(body)))

    def _redirected(self, node: tree_sitter.Node, depth: int) -> Iterator[Command]:
        before = self.count
        for child in node.named_children:
            if child.type != "heredoc_redirect":
                yield from self._walk(child, depth + 1)
        document = next((child for child in node.named_children if child.type == "heredoc_redirect"), None)
        if document is None or self.count == before:
            return
        # A job that is written in place: `sbatch <<EOF`. Its rows are commands of their own.
        command = next((child for child in node.named_children if child.type == "command"), None)
        name = command.child_by_field_name("name") if command is not None else None
        if name is None or self._text(name) not in ("sbatch", "bash", "sh", "qsub", "srun", "ssh"):
            return
        for part in document.named_children:
            if part.type == "heredoc_body":
                yield from self._inner(self.source[part.start_byte : part.end_byte], part.start_point.row)

    def _inner(self, source: bytes, row: int) -> Iterator[Command]:
        """Commands of a text that is a script itself, with this one's variables."""
        if self.state.calls >= _CALLS:
            return
        inner = Shell(self.file, source.decode("utf-8", "replace"))
        start = self._line(row)
        inner.lines = {number: start + number for number in range(source.count(b"\n") + 2)}
        inner.state = self.state
        self.state.calls += 1
        for command in inner._walk(parse_shell(inner.source), 0):
            self.count += 1
            yield command
        self.state.calls -= 1

    def _declare(self, node: tree_sitter.Node) -> None:
        exports = self._text(node).lstrip().startswith("export")
        for child in node.named_children:
            if child.type == "variable_assignment":
                self._assign(child)
                name = child.child_by_field_name("name")
                if exports and name is not None:
                    self._export(self._text(name), child)
            elif child.type == "variable_name" and exports:
                self._export(self._text(child), child)

    def _export(self, name: str, node: tree_sitter.Node) -> None:
        held = self.state.values.get(name)
        if held:
            self.state.exported[name] = Word(" ".join(word.text for word in held), self._place(node))

    def _assign(self, node: tree_sitter.Node) -> None:
        name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        if name is None:
            return
        key = self._text(name)
        words: list[Word] = []
        if value is not None and value.type == "array":
            words = [word for child in value.named_children if child.type != "comment" for word in self._words(child)]
        elif value is not None:
            words = [Word(self._expanded(value, quoted=True), self._place(node))]
        else:
            words = [Word("", self._place(node))]
        operator = any(not child.is_named and child.type == "+=" for child in node.children)
        before = self.state.values.get(key)
        if self.state.branches:
            self._perhaps(key, words)
        elif not operator:
            self.state.perhaps.pop(key, None)
        if operator:
            if value is not None and value.type != "array" and before:
                words = [Word(before[0].text + words[0].text, words[0].place)]
            else:
                words = [*(before or []), *words]
            if self.state.branches:
                words = [*(before or []), Word(f"${{{key}}}", self._place(node))]
        elif self.state.branches and before is not None and [w.text for w in before] != [w.text for w in words]:
            # One of several values, by a condition.
            words = [Word(f"${{{key}}}", self._place(node))]
        if len(words) <= MAX_WORDS:
            self.state.values[key] = words
        if key in self.state.exported or self.state.exports_all:
            self._export(key, node)

    def _perhaps(self, key: str, words: list[Word]) -> None:
        held = self.state.perhaps.setdefault(key, [])
        if len(held) < MOST_PERHAPS:
            held += [Word(part, word.place) for word in words for part in _split(word.text)]

    def _command(self, node: tree_sitter.Node, depth: int) -> Iterator[Command]:
        variables = dict(self.state.exported)
        words: list[Word] = []
        for child in node.named_children:
            if child.type == "variable_assignment":
                name, value = child.child_by_field_name("name"), child.child_by_field_name("value")
                if name is not None:
                    text = self._expanded(value, quoted=True) if value is not None else ""
                    variables[self._text(name)] = Word(text, self._place(child))
            elif child.type == "command_name":
                for part in child.named_children:
                    words += self._words(part)
            elif child.type not in ("comment", "file_redirect", "herestring_redirect", "heredoc_redirect"):
                words += self._words(child)
        self.count += 1
        self.size += len(words)
        if not words:
            return
        first = words[0].text
        if first in self.state.functions and self.state.calls < _CALLS:
            yield from self._called(first, words[1:], depth)
            return
        if first == "set" and len(words) > 1 and (words[1].text[1:] == "a" or words[-1].text == "allexport"):
            self.state.exports_all = words[1].text[0] == "-"
            return
        if first == "cd" and len(words) > 1:
            self.state.folder = words[1].text
            return
        if first in ("source", ".") and len(words) > 1 and self._takes_in(words[1].text):
            return
        last = words[-1]
        text = last.text.removeprefix("--command=")
        if " " in text and _hands_on([word.text for word in words]):
            yield from self._inner(text.encode(), 0 if self.lines else last.place.line - 1)
            return
        # In a branch of its own it is that one's words that a command gets, and no other's.
        held = self.state.perhaps.keys() if not self.state.branches else frozenset()
        names = {word.text[2:-1] for word in words if word.text.startswith("${")} & held
        perhaps = {name: tuple(self.state.perhaps[name]) for name in sorted(names)}
        yield Command(tuple(words), self._place(node), variables, self.state.folder, perhaps)

    def _takes_in(self, name: str) -> bool:
        """The variables and functions of a file that is sourced; its commands are that file's own."""
        held = self.state.sourced(name, self.state.folder) if self.state.calls < _CALLS else None
        if held is None:
            return False
        inner = Shell(held[0], held[1])
        inner.state = self.state
        self.state.calls += 1
        for _ in inner._walk(parse_shell(inner.source), 0):
            self.count += 1
        self.state.calls -= 1
        for key, words in self.state.values.items():
            if len(words) == 1 and words[0].place.file == inner.file:
                self.state.taken[key] = words[0]
        return True

    def _called(self, name: str, given: list[Word], depth: int) -> Iterator[Command]:
        self.state.called.add(name)
        outer = {key: self.state.values.get(key) for key in [*map(str, range(1, 10)), "@"]}
        for number in range(1, 10):
            self.state.values[str(number)] = given[number - 1 : number]
        self.state.values["@"] = given
        self.state.calls += 1
        shell, body = self.state.functions[name]
        yield from shell._walk(body, depth + 1)
        self.state.calls -= 1
        for key, before in outer.items():
            if before is None:
                self.state.values.pop(key, None)
            else:
                self.state.values[key] = before

    def _words(self, node: tree_sitter.Node) -> list[Word]:
        """The words that one argument becomes: an array or an unquoted variable may be several, or none."""
        inside = node.named_children[0] if node.type == "string" and len(node.named_children) == 1 else node
        whole_string = node.type != "string" or self._text(node).startswith('"$')
        if inside.type in ("expansion", "simple_expansion") and whole_string:
            name, every = self._variable(inside)
            held = self.state.values.get(name)
            if held is not None and (every or name == "@"):
                return list(held)
            if held is not None and node.type != "string" and len(held) == 1 and _is_plain(inside):
                return [Word(part, held[0].place) for part in _split(held[0].text)]
        return [Word(self._expanded(node), self._place(node))]

    def _expanded(self, node: tree_sitter.Node, quoted: bool = False) -> str:
        kind = node.type
        if kind == "raw_string":
            return self._text(node)[1:-1]
        if kind in ("expansion", "simple_expansion"):
            return self._value_of(node)
        if kind == "command_substitution":
            text = self._text(node)
            return _HERE if "dirname" in text and ("$0" in text or "BASH_SOURCE" in text) else "${(command)}"
        if kind == "arithmetic_expansion":
            return self._arithmetic(node)
        if kind in ("string", "concatenation"):
            text, start = "", node.start_byte
            for child in node.named_children:
                text += _unquoted(self.source[start : child.start_byte].decode("utf-8", "replace"))
                text += self._text(child) if child.type == "string_content" else (self._expanded(child, quoted=True))
                start = child.end_byte
            rest = self.source[start : node.end_byte].decode("utf-8", "replace")
            return text + _unquoted(rest)
        if kind == "ansi_c_string":
            return self._text(node)[2:-1]
        return self._text(node).replace("\\\n", "").replace("\\", "")

    def _arithmetic(self, node: tree_sitter.Node) -> str:
        """`$((A / B / C))` of known whole numbers: one operation, or a chain of products and quotients."""
        text = _DEFAULTED.sub(lambda found: self._or_default(found[1], found[2]), self._text(node)[3:-2])
        text = re.sub(r"\$?\{?([A-Za-z_]\w*)\}?", lambda found: self._plain(found[1]), text)
        text = re.sub(r"\(([\d\s*/+-]{1,80})\)", lambda found: _worked_out(found[1]) or found[0], text)
        return _worked_out(text) or "${(arithmetic)}"

    def _or_default(self, name: str, default: str) -> str:
        """`${NAME:-1}` in arithmetic: what the caller's environment may replace is the default that stands there."""
        held = self._plain(name)
        return held if held.isdigit() else default

    def _plain(self, name: str) -> str:
        held = self.state.values.get(name)
        return held[0].text if held and len(held) == 1 else name

    def _value_of(self, node: tree_sitter.Node) -> str:
        name, _ = self._variable(node)
        text = self._text(node)
        operator = next((child.type for child in node.children if not child.is_named and child.type in _DEFAULTS), "")
        held = self.state.values.get(name)
        if operator in (":-", "-", ":=", "="):
            others = [
                child for child in node.named_children if child.type not in ("variable_name", "special_variable_name")
            ]
            if held and held[0].text and _OPEN.search(held[0].text) is None:
                return " ".join(word.text for word in held)
            # What the caller's environment may replace: the default is what stands there.
            return "".join(self._expanded(child, quoted=True) for child in others[:1])
        if held is not None and len(held) <= 50 and _is_plain(node):
            joined = " ".join(word.text for word in held)
            return joined if len(joined) <= 10_000 else f"${{{name}}}"
        return f"${{{name}}}" if _is_plain(node) else "${" + text.strip("${}").replace("}", "") + "}"

    def _line(self, row: int) -> int:
        return (self.lines or {}).get(row, row + 1)

    def _place(self, node: tree_sitter.Node) -> Place:
        start, end = node.start_point, node.end_point
        if self.lines is not None:
            return Place(self.file, self._line(start.row))
        return Place(self.file, start.row + 1, start.column + 1, end.row + 1, end.column + 1)

    def _text(self, node: tree_sitter.Node) -> str:
        return text_of(node, self.source)

    def _variable(self, node: tree_sitter.Node) -> tuple[str, bool]:
        """The name, and whether it is `${NAME[@]}`."""
        for child in node.named_children:
            if child.type == "subscript":
                name = child.named_children[0] if child.named_children else child
                return self._text(name), self._text(child).endswith(("[@]", "[*]"))
            if child.type in ("variable_name", "special_variable_name"):
                return self._text(child), False
        return self._text(node).strip("${}"), False


def _worked_out(text: str) -> str:
    """A sum of two whole numbers, or a chain of `*` and `/` from the left, as shells divide. Empty: anything else."""
    parts = re.findall(r"\d{1,12}|\S", text)
    if not parts or len(parts) % 2 == 0 or len(parts) > 13 or not all(one.isdigit() for one in parts[::2]):
        return ""
    value = int(parts[0])
    for operator, right in zip(parts[1::2], map(int, parts[2::2]), strict=True):
        if operator in "+-" and len(parts) > 3:
            return ""
        if operator not in "*/+-" or (operator == "/" and not right):
            return ""
        value = {"*": value * right, "+": value + right, "-": value - right}.get(operator, value // (right or 1))
    return str(value) if len(str(value)) < 20 else ""


def _is_plain(node: tree_sitter.Node) -> bool:
    """`$NAME`, `${NAME}` or `${NAME[@]}`, without an operator."""
    return not any(not child.is_named and child.type not in ("$", "${", "}") for child in node.children)


def _unquoted(text: str) -> str:
    return text.replace('"', "").replace("\\\n", "")


def _split(text: str) -> list[str]:
    return text.split() if "${" not in text else re.findall(r"(?:\$\{[^}]*\}|\S)+", text)

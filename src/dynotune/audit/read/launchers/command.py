"""What a command starts, through how many launchers it may: `srun torchrun train.py --lr 1e-5` starts `train.py`."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any

from dynotune.audit.facts.setting import Setting, Unknown
from dynotune.audit.place import Place
from dynotune.audit.read.launchers.shell import Command, Word
from dynotune.config.reading.files import read_flow
from dynotune.errors import ConfigError


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_OPEN = re.compile(r"\$\{([^}]*)\}")
_PYTHON = re.compile(r"(?:.*/)?python[0-9.]*")
_BEFORE = frozenset(
    {"nohup", "time", "exec", "nice", "sudo", "command", "stdbuf", "ionice", "setsid", "caffeinate", "eval"}
)
_RUNNERS = frozenset({"uv", "poetry", "pipenv", "pdm", "hatch", "rye", "pixi", "conda", "mamba", "micromamba"})
_LAUNCHER_VALUES = {"env": frozenset({"-u", "-C"}), "numactl": frozenset({"-C", "-N", "-m"})}
SWITCHES: Mapping[str, frozenset[str]] = {
    "torchrun": _names("standalone m module no_python no-python use_env use-env run_path run-path"),
    "accelerate launch": _names(
        "cpu multi_gpu multi-gpu tpu ipex mps use_deepspeed use_fsdp use_megatron_lm use_xpu use_tpu "
        "debug quiet q m module no_python use_cpu same_network tpu_cluster no_tpu_cluster "
        "enable_cpu_affinity use_parallelism_config"
    ),
    "deepspeed": _names("module no_python no_local_rank force_multi no_ssh enable_each_rank_log save_pid no_ssh_check"),
    "srun": _names(
        "exclusive overcommit O label l unbuffered u verbose v quiet Q no-kill k pty overlap X disable-status"
    ),
    "mpirun": _names("allow-run-as-root tag-output q quiet v verbose oversubscribe"),
    "python": _names("u O OO B s S E I v q b i"),
}
"""Flags without a value, by launcher; all others take one."""

OWN = {
    "trl": "trl",
    "axolotl": "axolotl",
    "llamafactory-cli": "llamafactory-cli",
    "lmf": "llamafactory-cli",
    "dynotune": "dynotune",
    "llamafactory": "llamafactory-cli",
}
MODULES = {
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "torchrun",
    "accelerate.commands.launch": "accelerate launch",
    "deepspeed.launcher.runner": "deepspeed",
}
COMMANDS = {
    "trl": "trl",
    "trl.cli": "trl",
    "trl.cli.main": "trl",
    "llamafactory": "llamafactory-cli",
    "llamafactory.cli": "llamafactory-cli",
    "dynotune": "dynotune",
    "dynotune.cli": "dynotune",
}
"""Modules that read a command as their first word."""

CONFIG_SUFFIXES = (".yaml", ".yml", ".json", ".toml")


@dataclass
class Started:
    """A command, taken apart."""

    launchers: list[str] = field(default_factory=list)
    launcher_flags: dict[str, Setting] = field(default_factory=dict)
    variables: dict[str, Word] = field(default_factory=dict)
    program: str = ""
    script: str = ""
    """As written."""

    module: str = ""
    rest: list[Word] = field(default_factory=list)


def take_apart(command: Command) -> Started | None:
    """None: it starts no program of Python."""
    found = Started(variables=dict(command.variables))
    words = list(command.words)
    for _ in range(12):
        if not words:
            return None
        name = PurePosixPath(words[0].text).name
        if name in _BEFORE or name in _LAUNCHER_VALUES or re.fullmatch(r"[A-Za-z_]\w*=.*", words[0].text):
            words = _past_prefix(words, found)
        elif name in _RUNNERS:
            words = _past_runner(words)
        elif name in ("srun", "mpirun", "mpiexec"):
            found.launchers.append(name)
            words = _flags(words[1:], SWITCHES["srun" if name == "srun" else "mpirun"], found)
        elif name == "torchrun":
            found.launchers.append(name)
            words = _flags(words[1:], SWITCHES[name], found)
            return _program(words, found)
        elif name == "accelerate" and len(words) > 1 and words[1].text == "launch":
            found.launchers.append("accelerate launch")
            words = _flags(words[2:], SWITCHES["accelerate launch"], found)
            return _program(words, found)
        elif name == "deepspeed":
            found.launchers.append(name)
            words = _flags(words[1:], SWITCHES[name], found)
            return _program(words, found)
        elif name in OWN:
            if len(words) < 2:
                return None
            found.program, found.rest = f"{OWN[name]} {words[1].text}", words[2:]
            return found
        elif _PYTHON.fullmatch(name) or words[0].text in ("${PYTHON}", "${PY}"):
            inner = Started()
            words = _flags(words[1:], SWITCHES["python"], inner)
            module = inner.launcher_flags.get("m")
            if "c" in inner.launcher_flags:
                return None
            if module is None:
                return _program(words, found)
            launcher = MODULES.get(str(module.value))
            if launcher is None:
                return _of_module(str(module.value), words, found)
            found.launchers.append(launcher)
            return _program(_flags(words, SWITCHES[launcher], found), found)
        else:
            return None
    return None


def _past_prefix(words: list[Word], found: Started) -> list[Word]:
    name = PurePosixPath(words[0].text).name
    takes = _LAUNCHER_VALUES.get(name, frozenset({"-n"}))
    rest = words if "=" in words[0].text and name not in _LAUNCHER_VALUES else words[1:]
    while rest:
        text = rest[0].text
        if text.startswith("-"):
            rest = rest[2:] if text in takes else rest[1:]
        elif re.fullmatch(r"[A-Za-z_]\w*=.*", text, re.DOTALL):
            key, _, value = text.partition("=")
            found.variables[key] = Word(value, rest[0].place)
            rest = rest[1:]
        else:
            break
    return rest


def _past_runner(words: list[Word]) -> list[Word]:
    """`uv run`, `conda run -n name`: up to the program."""
    rest = words[1:]
    if not rest or rest[0].text != "run":
        return []
    rest = rest[1:]
    while rest and rest[0].text.startswith("-"):
        takes = rest[0].text in (
            "-n",
            "--name",
            "-p",
            "--prefix",
            "--with",
            "--extra",
            "--group",
            "--python",
            "--package",
            "-e",
        )
        rest = rest[2:] if takes and "=" not in rest[0].text else rest[1:]
    return rest


def _flags(words: list[Word], switches: frozenset[str], found: Started) -> list[Word]:
    """Take a launcher's own flags off the front."""
    last = "m" if switches is SWITCHES["python"] else ""
    while words and words[0].text.startswith("-") and words[0].text != "--" and last not in found.launcher_flags:
        word, *words = words
        name, equals, value = word.text.lstrip("-").partition("=")
        key = name.replace("-", "_")
        if equals:
            found.launcher_flags[key] = _setting(key, [Word(value, word.place)], word.place)
        elif name in switches:
            found.launcher_flags[key] = Setting(key, True, word.place)
        elif word.text.startswith("-") and not word.text.startswith("--") and len(name) > 1 and name[1:].isdigit():
            found.launcher_flags[name[0]] = _setting(name[0], [Word(name[1:], word.place)], word.place)
        elif words:
            found.launcher_flags[key] = _setting(key, words[:1], word.place)
            words = words[1:]
    return words[1:] if words and words[0].text == "--" else words


def _program(words: list[Word], found: Started) -> Started | None:
    flags = found.launcher_flags
    if not words:
        return None
    if any(key in flags and flags[key].value is True for key in ("m", "module")):
        return _of_module(words[0].text, words[1:], found)
    first = words[0].text
    if first.endswith(".py"):
        found.program, found.script, found.rest = first, first, words[1:]
        return found
    name = PurePosixPath(first).name
    if name in OWN and len(words) > 1:
        found.program, found.rest = f"{OWN[name]} {words[1].text}", words[2:]
        return found
    if "${" in first:
        found.program, found.rest = first, words[1:]
        return found
    return None


def _of_module(module: str, words: list[Word], found: Started) -> Started:
    found.module, found.rest = module, words
    parts = module.split(".")
    if parts[0] == "trl" and len(parts) > 2 and parts[1] == "scripts":
        found.program = f"trl {parts[-1]}"
    elif parts[0] == "axolotl":
        found.program = f"axolotl {parts[-1]}"
    elif module in COMMANDS and words:
        found.program, found.rest = f"{COMMANDS[module]} {words[0].text}", words[1:]
    elif parts[0] == "llamafactory":
        found.program = "llamafactory-cli train"
    else:
        found.program = f"-m {module}"
    return found


def flags_of(words: list[Word]) -> tuple[dict[str, Setting], list[Word]]:
    """The flags of a program by name without dashes (`-` as `_`), and its positional words.

    A flag takes every word up to the next one, as argparse's lists do. One that is given twice counts last.
    """
    flags: dict[str, Setting] = {}
    positional: list[Word] = []
    position = 0
    while position < len(words):
        word = words[position]
        position += 1
        if not _is_flag(word.text):
            positional.append(word)
            continue
        name, equals, value = word.text.lstrip("-").partition("=")
        key = name.replace("-", "_")
        values = [Word(value, word.place)] if equals else []
        while not equals and position < len(words) and not _is_flag(words[position].text):
            values.append(words[position])
            position += 1
        # A value out of a variable stands elsewhere.
        last = values[-1].place if values and values[-1].place >= word.place else word.place
        place = replace(word.place, end_line=last.end_line, end_column=last.end_column, key=word.text.partition("=")[0])
        flags[key] = _setting(key, values, place) if values else Setting(key, True, place)
    return flags, positional


def _is_flag(text: str) -> bool:
    return (text.startswith("--") and len(text) > 2) or bool(re.fullmatch(r"-[A-Za-z]\w*", text))


def _setting(name: str, words: list[Word], place: Place) -> Setting:
    values = [plain(word.text) for word in words]
    return Setting(name, values[0] if len(values) == 1 else _together(values), place)


def _together(values: list[Any]) -> Any:
    return next((value for value in values if isinstance(value, Unknown)), values)


def plain(text: str) -> Any:
    """The value of a word: a number, a switch, a text; `Unknown` where a part of it is."""
    found = _OPEN.search(text)
    if found is not None:
        return Unknown(f"`${found[1]}` is known when it runs")
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if re.fullmatch(r"[-+]?\d{1,15}", text):
        return int(text)
    if re.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d{1,3})?", text) and len(text) < 40:
        return float(text)
    if text.startswith(("{", "[")) and len(text) < 10_000:
        try:
            return read_flow(text)
        except ConfigError:
            return text
    return text


def named_configs(words: Iterable[str]) -> Iterator[str]:
    """Words, or values after `=`, that name a configuration file, as they are written."""
    for word in words:
        text = word.rpartition("=")[2] if word.startswith("-") else word
        if text.endswith(CONFIG_SUFFIXES) and "=" not in text and not text.startswith(("http", "{", "hf:")):
            yield text

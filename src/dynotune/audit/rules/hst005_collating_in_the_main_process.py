"""HST005: rows are tokenised between steps, by the process that drives the device."""

import ast
import re
from collections.abc import Iterator, Mapping

from dynotune.audit.facts.asked import number, on_gpu
from dynotune.audit.facts.job import Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Call, Script
from dynotune.audit.facts.steps import text_at
from dynotune.audit.facts.together import imported
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

_HEAVY = re.compile(
    r"(^|\.)(\w*tokenizer|\w*tok|\w*processor|tokenize|encode_plus|batch_encode_plus|apply_chat_template"
    r"|encode_ordinary|encode_batch|encode_as_ids|EncodeAsIds)$"
)
_LIGHT = re.compile(r"\.(pad|decode|batch_decode|convert_\w+|get_\w+|save_\w+|add_\w+|enable_\w+|no_\w+)$")
"""What a tokenizer does without reading text."""

_MAKES_TOKENIZERS = (
    "Tokenizer.from_pretrained",
    "TokenizerFast.from_pretrained",
    "Processor.from_pretrained",
    "Tokenizer.from_file",
    "PreTrainedTokenizerFast",
    "SentencePieceProcessor",
    "tiktoken.get_encoding",
    "tiktoken.encoding_for_model",
)
_EACH_ROW = ("__getitem__", "__getitems__", "__call__", "__iter__")
_READS = frozenset({"PIL.Image.open", "torchaudio.load", "librosa.load", "json.load"})


def check(script: Script, project: Project) -> Iterator[Said]:
    if not any(call.name.endswith(("DataLoader", "Trainer")) for call in script.calls):
        return
    heavy = {
        **{name: work for one in imported(script, project) for name, work in _heavy(one).items()},
        **_heavy(script),
    }
    yield from _by_a_loader(script, heavy)
    yield from _by_a_trainer(script, project, heavy)


def _by_a_trainer(script: Script, project: Project, heavy: Mapping[str, Call]) -> Iterator[Said]:
    """A trainer's own loader, whose workers are a setting of the job."""
    for job in project.jobs:
        if script.file not in job.files or number(job, "dataloader_num_workers") != 0:
            continue
        if job.trainer is Trainer.DYNOTUNE or not on_gpu(job):
            continue
        for call in script.calls:
            data = re.search(r"train_dataset\s*=\s*(\w+)", text_at(script, call.place))
            if data is None or not call.name.endswith("Trainer"):
                continue
            makers = {data[1]} | {_last(one.name) for one in script.calls if one.result == data[1]}
            turned = re.findall(rf"\b{data[1]}\b[\w.\[\]'\"= ]*\.(?:set|with)_transform\(\s*(\w+)", script.source)
            makers |= set(turned)
            work = next((heavy[name] for name in sorted(makers) if name in heavy), None)
            if work is not None:
                key = job.called("dataloader_num_workers")
                setting = job.setting("dataloader_num_workers")
                yield Finding(
                    f"`{_called(work)}(...)` runs for every row in the process that drives the device (`{key}` is 0): the"
                    " device waits meanwhile.",
                    place=job.place("dataloader_num_workers"),
                    evidence=Evidence(Level.RESOLVED, {"num_workers": 0, "work": work.name}),
                    stake=Stake(AtStake.TIME, 0.0, 0.3, "milliseconds a row on one core, against the time of a step"),
                    remedy=Remedy(
                        Risk.SAFE,
                        f"Tokenise once before training; or set `{key}` to 2 to 4.",
                        (job.set("dataloader_num_workers", 2),) if job.is_given("dataloader_num_workers") else (),
                        measure="dynotune profile -- python train.py",
                    ),
                    also=(work.place, *(setting.via if setting else ())),
                )
                return


def _heavy(script: Script) -> Mapping[str, Call]:
    """Calls that take long, by what makes them for each row or batch: a class with `__getitem__`, `__iter__` or `__call__`,
    and what these call of its methods; a collating function; or a function that hands out rows one by one. What a function
    does to all rows before it returns them is done once, and so is what `map` does."""
    heavy: dict[str, Call] = {}
    tokenizers = {call.result for call in script.calls if call.name.endswith(_MAKES_TOKENIZERS)} - {""}
    of_rows = _methods_of_rows(script)
    names: dict[tuple[str, str], str] = {}
    for call in script.calls:
        holder = next((around.name for around in call.around if around.kind == "class"), "")
        functions = [around.name for around in call.around if around.kind == "function"]
        tokenizes = call.name in tokenizers or call.on in tokenizers or _HEAVY.search(call.name)
        if not functions or _LIGHT.search(f".{call.name}") or not (tokenizes or call.name in _READS):
            continue
        if holder and (holder, functions[0]) in of_rows:
            heavy.setdefault(holder, call)
        elif not holder:
            outer, inner = functions[0], functions[-1]
            if (outer, inner) not in names:  # once for each function: both go through the file
                names[outer, inner] = inner if _is_given(inner, script) else outer if _hands_out(outer, script) else ""
            if names[outer, inner]:
                heavy.setdefault(names[outer, inner], call)
    return heavy


def _methods_of_rows(script: Script) -> set[tuple[str, str]]:
    """Classes with those of their methods that run for each row or batch: those that a loader calls, and what these call."""
    calls: dict[str, dict[str, set[str]]] = {}
    for node in ast.walk(script.tree):
        if isinstance(node, ast.ClassDef):
            calls[node.name] = {
                one.name: {part.attr for part in ast.walk(one) if isinstance(part, ast.Attribute)}
                for one in node.body
                if isinstance(one, ast.FunctionDef)
            }
    found: set[tuple[str, str]] = set()
    for name, methods in calls.items():
        run = methods.keys() & set(_EACH_ROW)
        for _ in methods:
            run |= {one for called in run for one in methods[called]} & methods.keys() - {"__init__"}
        found |= {(name, one) for one in run}
    return found


def _is_given(name: str, script: Script) -> bool:
    """To a loader or a trainer that calls it for each batch, or to a data set that calls it for each row."""
    ways = rf"(collat\w*\s*=\s*|_transform\(\s*)(functools\.partial\(|partial\(|lambda [^:\n]*:\s*)?{re.escape(name)}\b"
    return re.search(ways, script.source) is not None


def _hands_out(name: str, script: Script) -> bool:
    """It is a generator."""
    return any(
        isinstance(node, ast.FunctionDef)
        and node.name == name
        and any(isinstance(one, ast.Yield | ast.YieldFrom) for one in ast.walk(node))
        for node in script.tree.body
    )


def _called(work: Call) -> str:
    """As the source has it, or nearly."""
    return f"{work.on}.{_last(work.name)}" if work.on else work.name.lstrip(".")


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _by_a_loader(script: Script, heavy: Mapping[str, Call]) -> Iterator[Said]:
    for loader in script.calls:
        if loader.name != "torch.utils.data.DataLoader" or "**" in loader.arguments:
            continue
        workers = loader.arguments.get("num_workers")
        if workers is not None and workers.value != 0:
            continue
        work = _work(script, loader, heavy)
        if work is None:
            continue
        yield Finding(
            f"`{_called(work)}(...)` runs for every batch in the process that drives the device (`num_workers` is"
            f" {'0' if workers is not None else 'left at 0'}): the device waits meanwhile.",
            place=workers.place if workers is not None else loader.place,
            evidence=Evidence(Level.TEXT, {"num_workers": 0, "work": work.name}),
            stake=Stake(AtStake.TIME, 0.0, 0.3, "milliseconds a row on one core, against the time of a step"),
            remedy=Remedy(
                Risk.SAFE,
                "Tokenise once before training; or set `num_workers` to 2 to 4 with `persistent_workers=True`.",
                breaks="Workers copy what the data set holds in memory; a tokenizer in workers wants"
                " `TOKENIZERS_PARALLELISM=false`.",
                measure="dynotune profile -- python train.py",
            ),
            also=(work.place,),
        )


def _work(script: Script, loader: Call, heavy: Mapping[str, Call]) -> Call | None:
    """The heavy call that this loader's data set or collator makes for each row."""
    text = text_at(script, loader.place)
    collate = re.search(r"collate_fn\s*=\s*(?:functools\.)?(?:partial\(\s*|lambda [^:\n]*:\s*)?(\w+)", text)
    if collate and collate[1] in heavy:
        return heavy[collate[1]]
    first = re.match(r"[\w.]*DataLoader\(\s*(dataset\s*=\s*)?(\w+)", text)
    if not first:
        return None
    makers = {_last(call.name) for call in script.calls if call.result == first[2]} | {first[2]}
    if collate:
        makers |= {_last(call.name) for call in script.calls if call.result == collate[1]}
    return next((heavy[name] for name in sorted(makers) if name in heavy), None)


_DATA = """from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __init__(self, rows, tokenizer):
        self.rows, self.tokenizer = rows, tokenizer

    def __getitem__(self, index):
        return self.tokenizer(self.rows[index]["text"], truncation=True, return_tensors="pt")


data = Rows(rows, tokenizer)
"""
RULE = Rule(
    code="HST005",
    name="collating-in-the-main-process",
    summary="Rows are tokenised or decoded between steps, without workers.",
    group=Group.PERFORMANCE,
    subject=Subject.SCRIPT,
    check=check,
    page=Page(
        what="A `DataLoader` without workers makes each batch in the training process, between two steps.",
        why="Tokenising a row takes up to a millisecond, opening an image more. A batch of them is a gap in every"
        " step.",
        detected="E0: a tokenizer, a processor or a decoder is called in `__getitem__` or what that calls, in a"
        " generator or in the collator of a loader whose `num_workers` is 0, in the same file or one that it imports from."
        " Data that lies in memory as tensors needs no workers, and is not reported.",
        proven="`dynotune profile -- python train.py` shows the time that steps wait for data.",
        deliberate=(
            "Steps are so long that the gap cannot be seen.",
            "Workers are harmful on WSL and in small containers.",
        ),
        sources=("PyTorch's documentation of `torch.utils.data`, single- and multi-process loading",),
    ),
    bad=Example({"train.py": f"{_DATA}loader = DataLoader(data, batch_size=8, shuffle=True)\n"}, says="tokenizer"),
    good=Example({"train.py": f"{_DATA}loader = DataLoader(data, batch_size=8, shuffle=True, num_workers=4)\n"}),
)

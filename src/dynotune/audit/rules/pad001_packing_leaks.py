"""PAD001: packed documents see each other."""

import ast
import re
from collections.abc import Iterator, Sequence

from dynotune.audit.change import Change
from dynotune.audit.facts.asked import at_least, attention, given, is_false, version
from dynotune.audit.facts.bins_of_whole_rows import filled_by_whole_rows
from dynotune.audit.facts.job import Job, Method, Trainer
from dynotune.audit.facts.packed_rows import DENSE, READS_POSITIONS, TELLS_DOCUMENTS, leaks_without_flash
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import place_of
from dynotune.audit.facts.together import code, connected
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

_SFT = "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: data.jsonl\npacking: true\n"


_APART = re.compile(
    r"position_ids|cu_seq|seq_?len_?s|seqlens|segment|document_ids|doc_ids|block_mask|BlockMask|varlen|Flattening|_mask\[.*:.*,"
    r"|block_diag|tril",
    re.IGNORECASE,
)
_ANSWERS = re.compile(
    r"apply_chat_template|['\"](messages|conversations|response|instruction|completion|chosen|answer)['\"]"
    r"|### (Response|Answer)|(?:\\n|\b)(?:Answer|Assistant): ?[{\\\"']|<\|assistant\|>|<\|im_start\|>|\[/INST\]"
)
_JOINS = re.compile(r"\bchain\(|\bchain\.from_iterable\(|\bsum\(.*, \[\]\)|np\.concatenate\(|torch\.cat\(")
_CUTS = re.compile(r"\[(\w+):\1 \+ [\w.]+\]")
_BUFFER = re.compile(
    r"\b([\w.]+) = \1\[[\w.]+:\]|\bdel ([\w.]+)\[:[\w.]+\]"
    r"|\b(\w+)(?:, \w+)+ = \(\3\[[\w.]+:\]|\b(\w+)\[(\w+):\5 \+ [\w.]+\]"
)
"""A stream whose head is taken off, or that is cut at each so many tokens."""


def _by_hand(job: Job, project: Project) -> Iterator[Said]:
    """The job's own code joins conversations to one stream and cuts it into rows, and nothing tells documents apart."""
    if job.trainer not in (Trainer.TRANSFORMERS, Trainer.TORCH, Trainer.TRL, Trainer.UNSLOTH) or not job.home.file:
        return
    start = next((one for one in project.scripts if one.file in job.files), None)
    near = connected(start, project) if start is not None else ()
    sources = [code(one) for one in near]
    if any(_ANSWERS.search(one) for one in sources):
        yield from _of_constant_length(job, near)
    if any(_APART.search(one) for one in sources) or not any(_ANSWERS.search(one) for one in sources):
        return
    for script in near:
        for function in ast.walk(script.tree):
            if not isinstance(function, ast.FunctionDef) or re.search(r"eval|valid|test", function.name):
                continue
            where = _joined(function)
            if where is not None:
                yield _finding(
                    f"`{function.name}` joins conversations to rows, cuts them anywhere and tells them apart by nothing",
                    place_of(script, where),
                    job,
                    "Pack whole documents with `position_ids` and flash attention (`DataCollatorWithFlattening`), or pad",
                    None,
                )
                return
            whole = filled_by_whole_rows(function)
            if whole is not None:
                yield _finding(
                    f"`{function.name}` lays whole examples behind each other in one row and tells them apart by nothing",
                    place_of(script, whole),
                    job,
                    "Hand on `position_ids` that begin anew at each one, with flash attention"
                    " (`DataCollatorWithFlattening` makes them), or pad",
                    None,
                )
                return


def _of_constant_length(job: Job, near: Sequence[Script]) -> Iterator[Said]:
    """TRL's `ConstantLengthDataset`, which joins what it is given and cuts it into rows."""
    for script in near:
        for call in script.calls_of("ConstantLengthDataset"):
            if not re.search(r"eval|valid|test", call.result):
                yield _finding(
                    "`ConstantLengthDataset` joins conversations to rows, cuts them anywhere and tells them apart by"
                    " nothing",
                    call.place,
                    job,
                    "Take TRL 0.23 or later with `packing=True` and flash attention, or train without packing",
                    None,
                )
                return


def _joined(function: ast.FunctionDef) -> ast.AST | None:
    text = ast.unparse(function)
    if len(text) > 5_000 or ("input_ids" not in text and "labels" not in text):
        return None
    for buffer in _BUFFER.finditer(text):
        name = re.escape(buffer[1] or buffer[2] or buffer[3] or buffer[4])
        grows = re.search(rf"\b{name}(\.extend\(| \+= (?!1\b))", text)
        loops = [one for one in function.body if isinstance(one, ast.For | ast.While)]
        within = next((one for one in loops if grows and grows[0] in ast.unparse(one)), None)
        if within is not None:
            return within
    if _JOINS.search(text) and _CUTS.search(text):
        return next((one for one in function.body if _JOINS.search(ast.unparse(one))), None)
    return None


def _without_flash(job: Job) -> Finding:
    """TRL lays rows end to end, and its release hands what tells them apart to flash attention alone."""
    used = attention(job)
    shown = ".".join(map(str, version(job, "trl") or ()))
    named = f"`{job.called('attn_implementation')}: {used}`" if used else "the model's own attention (`sdpa`)"
    key = "packing" if job.get("packing") is True else "padding_free"
    return _finding(
        f"`{key}: true` lays documents end to end in one row, and TRL {shown} hands their positions to flash attention"
        f" alone: {named} sees no boundaries",
        job.place(key),
        job,
        f"Set `{job.called('attn_implementation')}: flash_attention_2`, take TRL 0.23 or later, or train without `{key}`",
        None,
        also=(job.place("attn_implementation"),) if job.is_given("attn_implementation") else (),
    )


def _keeps_a_cache(job: Job) -> bool:
    """Whether nothing takes the model's cache away in training; checkpointing does."""
    checkpointing = job.setting("gradient_checkpointing")
    return (checkpointing is None and not job.holes) or is_false(job, "gradient_checkpointing")


_NO_CACHE = re.compile(r"use_cache\W{0,4}\s{0,3}=?:?\s{0,3}False")


def _flattened(job: Job, project: Project) -> Iterator[Said]:
    """`DataCollatorWithFlattening` of transformers, whose positions an attention with a dense mask does not read."""
    if job.trainer is not Trainer.TRANSFORMERS or attention(job) not in DENSE:
        return
    reads = at_least(job, "transformers", *READS_POSITIONS)
    if reads is not False and (at_least(job, "transformers", 5) is not False or not _keeps_a_cache(job)):
        return  # later ones keep no cache in training, and read positions
    start = next((one for one in project.scripts if one.file in job.files), None)
    near = connected(start, project) if start is not None else ()
    if reads and any(_NO_CACHE.search(one.source) for one in near):
        return
    for script in near:
        for call in script.calls_of("DataCollatorWithFlattening"):
            shown = ".".join(map(str, version(job, "transformers") or ()))
            named = attention(job) or "the model's own attention"
            reason = "makes no mask of positions" if not reads else "makes none while the model keeps a cache"
            yield _finding(
                f"`DataCollatorWithFlattening` lays a batch end to end and tells documents apart by positions alone, and"
                f" under `{named}` transformers {shown} {reason}",
                call.place,
                job,
                'Load the model with `attn_implementation="flash_attention_2"`, or pad',
                None,
            )
            return


def _flat_by_an_old_release(job: Job) -> bool:
    """`padding_free` of a TRL that gives positions alone, under an attention that transformers before 4.53 makes no mask of
    them for."""
    if job.get("padding_free") is not True or job.get("packing") is True or attention(job) not in DENSE:
        return False
    old = at_least(job, "trl", *TELLS_DOCUMENTS) is False
    return old and at_least(job, "transformers", *READS_POSITIONS) is False


def _of_an_old_release(job: Job) -> Finding:
    named = f"`{attention(job)}`" if attention(job) else "the model's own attention (`sdpa`)"
    shown = ".".join(map(str, version(job, "transformers") or ()))
    return _finding(
        "`padding_free: true` lays a batch end to end in one row and tells documents apart by positions, and transformers"
        f" {shown} makes no mask of positions for {named}",
        job.place("padding_free"),
        job,
        f"Set `{job.called('attn_implementation')}: flash_attention_2`, or train without `padding_free`",
        None,
    )


_OF_TRL = (Trainer.TRL, Trainer.UNSLOTH)


def check(job: Job, project: Project) -> Iterator[Said]:
    yield from _by_hand(job, project)
    yield from _flattened(job, project)
    if job.method is not Method.SFT:
        return
    if job.trainer is Trainer.TRL and _flat_by_an_old_release(job):
        yield _of_an_old_release(job)
        return
    if job.trainer is Trainer.TRL and leaks_without_flash(job):
        yield _without_flash(job)
        return
    if job.get("packing") is not True:
        return
    change: Change | None = None
    if job.trainer in _OF_TRL and at_least(job, "trl", *TELLS_DOCUMENTS) is False:
        shown = ".".join(map(str, version(job, "trl") or ()))
        why, key = (
            f"`packing: true` of TRL {shown} joins documents, cuts them anywhere and hands no boundaries on",
            "packing",
        )
        text = "Take TRL 0.20 or later with flash attention, or train without packing"
    elif job.trainer in (Trainer.TRL, Trainer.DYNOTUNE) and job.get("packing_strategy") == "wrapped":
        why, key = "`packing_strategy: wrapped` joins documents and cuts them anywhere", "packing_strategy"
        text, change = "Set `packing_strategy: bfd`", job.set("packing_strategy", "bfd")
    elif job.trainer is Trainer.LLAMA_FACTORY:
        neat = given(job, "neat_packing")
        if neat is not None and neat.value is not False:
            return
        why, key = "`packing: true` without `neat_packing: true` keeps no boundaries", "packing"
        text, change = "Set `neat_packing: true`", job.set("neat_packing", True)
    elif job.trainer is Trainer.AXOLOTL and attention(job) in ("", None) and _no_flash(job):
        why, key = "`sample_packing` with `flash_attention: false` has nothing that keeps samples apart", "packing"
        text = "Set `flash_attention: true`, or `flex_attention: true`"
    elif job.trainer is Trainer.AXOLOTL and attention(job) in ("", None) and _none_asked(job, project):
        why, key = (
            "`sample_packing` without an attention that keeps samples apart leaves it to `sdpa`, which does not",
            "packing",
        )
        text = "Set `flash_attention: true`, or `flex_attention: true`"
    elif (
        job.trainer is Trainer.AXOLOTL and attention(job) in ("sdpa", "eager") and not given(job, "pretraining_dataset")
    ):
        why, key = f"`sample_packing` under `{attention(job)}` has nothing that keeps samples apart", "packing"
        text = (
            f"Set `flash_attention: true`, or `flex_attention: true`, in place of `{job.called('attn_implementation')}`"
        )
    else:
        return
    yield _finding(why, job.place(key), job, text, change)


def _finding(
    why: str, place: Place, job: Job, text: str, change: Change | None, also: tuple[Place, ...] = ()
) -> Finding:
    return Finding(
        f"{why}: the tokens of one document attend to those of the document before it in the row.",
        place=place,
        evidence=Evidence(Level.RESOLVED, {"trainer": str(job.trainer), "packing": True}),
        stake=Stake(AtStake.RESULT, source="measured losses 0.1 to 0.9 off with leaking rows, 3e-6 with isolated ones"),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            f"{text}.",
            (change,) if change else (),
            accuracy="Each document is learned by itself, as it will be used.",
            measure="Change one document of a row, keeping its length: the loss of the others must not move.",
        ),
        also=also,
    )


ISOLATES = (0, 19)
"""The release of Axolotl from which on this is not said: plain `sdpa` keeps packed samples apart in later ones."""

_ATTENTIONS = (
    "flash_attention", "flex_attention", "xformers_attention", "sdp_attention", "s2_attention", "sage_attention",
    "attn_implementation", "pretraining_dataset",
)  # fmt: skip


def _none_asked(job: Job, project: Project) -> bool:
    """No key of any attention, and a release is asked for that warns of this and goes on."""
    pinned = project.pinned("axolotl")
    asked = any((key := given(job, name)) is not None and key.value for name in _ATTENTIONS)
    return pinned is not None and pinned < ISOLATES and not asked


def _no_flash(job: Job) -> bool:
    """Flash attention is refused by its own key, and no other attention that keeps samples apart is asked for."""
    others = ("flex_attention", "xformers_attention", "sdp_attention", "s2_attention", "sage_attention")
    flash = given(job, "flash_attention")
    asked = any((key := given(job, name)) is not None and key.value for name in (*others, "attn_implementation"))
    return flash is not None and flash.value is False and not asked and not given(job, "pretraining_dataset")


RULE = Rule(
    code="PAD001",
    name="packing-leaks",
    summary="Packed documents attend to each other.",
    group=Group.CORRECTNESS,
    subject=Subject.JOB,
    check=check,
    page=Page(
        what="Packing puts several documents into one row. Unless boundaries reach the attention, a document's tokens see"
        " those of its neighbours.",
        why="What is learned then depends on chance neighbours. In a study of 60 steps the loss was 0.3 to 0.9 off where"
        " documents leaked, and 3e-6 where they did not; resetting positions without isolating made it worse.",
        detected="E1: the packing that resolves for each trainer: TRL's `wrapped`, its packing before 0.19, and until"
        " 0.22 any packing or `padding_free` under another attention than flash;"
        " `DataCollatorWithFlattening` without flash attention before transformers 4.53, and before 5 where the model keeps"
        " a cache;"
        " LLaMA-Factory's `packing` without"
        " `neat_packing`, Axolotl's `sample_packing` under `sdpa` or `eager`, and without a key of any attention where the"
        " project asks for a release before 0.19. E0: a function that joins conversations"
        " and cuts them into rows, in a program that names no positions, segments or mask to tell them apart.",
        proven="Change one document of a row, keeping its length: the loss of the others must not move.",
        deliberate=("Continued pretraining on plain text, where documents are joined as a rule.",),
        sources=(
            "TRL 1.16 run on the CPU: `wrapped` gives SDPA no mask and `is_causal=True`",
            "TRL 0.19 to 0.22: `return_position_ids=use_flash_attention`; transformers 4.53: `_preprocess_mask_arguments`",
            "LLaMA-Factory 0.9.5's source; Axolotl pull request 3796",
        ),
    ),
    bad=Example({"sft.yaml": f"{_SFT}packing_strategy: wrapped\n"}, says="attend"),
    good=Example({"sft.yaml": f"{_SFT}packing_strategy: bfd\n"}),
)

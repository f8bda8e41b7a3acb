"""A comment names a batch size, a kernel, a stage or a rate that the settings do not come to."""

import ast
import math
import re
from collections.abc import Iterator, Mapping

from dynotune.audit.facts.asked import given, number
from dynotune.audit.facts.cards import gpus_told
from dynotune.audit.facts.job import Job
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.lines import lines_of
from dynotune.audit.place import Place

_CLAIM = re.compile(r"\b(?:effective|global|total)[\s_-]+(?:train[\s_-]+)?batch(?:[\s_-]*size)?\b(.*)", re.IGNORECASE)
_WORDS = r"(?:\s{1,3}[A-Za-z][A-Za-z-]{1,14}){0,2}"
_PRODUCT = re.compile(rf"(\d+{_WORDS}(?:\s*[*x\u00d7]\s*\d+{_WORDS})+)")
"""`8 x 4`, `2 GPUs x 8 rows x 4`."""

_RESULT = re.compile(r"=\s*(\d+)\s*(?:\)|$|[,.;]|examples|rows|samples|sequences)")
_PLAIN = re.compile(
    r"^\s*(?:of|is|=|:|->|→|~)?\s*(\d+)(?!\d|[\d.]*[kKmM]|\s*[*x\u00d7]"
    r"|\s*(?:tokens|per\b|(?:on |for )?(?:each|every)\b|/|GPUs?\b|cards?\b|devices\b|nodes\b|processes\b|ranks\b))"
)
_EACH = re.compile(
    r"(?<![\d.,])(\d+)\s+(?:pairs|examples|rows|sequences|samples|conversations|documents|prompts|threads)\s+(?:per|an|a|each|every)\s+"
    r"(?:optimi[sz]er\s+|global\s+)?(?:update|step)\b",
    re.IGNORECASE,
)
"""`64 pairs per update`."""

_SEES = re.compile(
    r"\b(?:one|each|every|an|a)\s+(?:optimi[sz]er\s+|weight\s+)?(?:update|step)\s+(?:sees|takes|is|covers|has|averages|uses|spans|counts)"
    r"\s+(?:over\s+)?(\d+)\s+(?!tokens|seconds|minutes|hours|ms\b|micro|GPUs?|steps|percent|passes)[a-z]{3,}",
    re.IGNORECASE,
)
"""`one update sees 256 abstracts`."""

_SUM = re.compile(
    r"(\d+(?:\s+[a-z][a-z-]{1,14}){0,2}(?:\s*[*x\u00d7]\s*\d+(?:\s+[a-z][a-z-]{1,14}){0,2}){1,4})\s*=\s*(\d+)\b(?![.,]\d)",
    re.IGNORECASE,
)
"""`4 cards x 4 pairs x 2 = 64`."""

_ROWS = re.compile(
    r"batch|pairs|rows|examples|sequences|samples|update|step|accum|gpu|card|process|rank", re.IGNORECASE
)
_FLASH = re.compile(r"\bflash[\s_-]*att", re.IGNORECASE)
NOT_SO = re.compile(r"\b(?:no|not|without|instead|unless|if|needs?|requires?|or|todo|was|switch)\b|n't", re.IGNORECASE)
ANSWERS = re.compile(
    r"(?:loss|train\w*)\b[^.]*\b(?:answers?|responses?|completions?|assistant|repl(?:y|ies))\b[^.]*\bonly\b"
    r"|(?:loss|train\w*)\b[^.]*\bonly\b[^.]*\b(?:answers?|responses?|completions?|assistant|repl(?:y|ies))\b"
    r"|\bloss\b[^.]{0,20}\b(?:covers|counts|is (?:taken|computed) on) the (?:assistant|answers?|responses?|repl(?:y|ies))\b"
    r"|\b(?:prompts?|prompt tokens|instructions?|questions?|users?'? turns?|user tokens)\b[^.]{0,12}\b(?:is|are|were)\b"
    r" (?:masked|context only|excluded from the loss|ignored (?:in|by) the loss|left out of the loss)",
    re.IGNORECASE,
)
_OUT = re.compile(
    r"\b(?:prompts?|prompt tokens|instructions?|questions?|users?'?(?: turns?| messages?| tokens)?)\b[^.]{0,30}"
    r"\b(?:(?:do(?:es)?|is|are) (?:not|never)|(?:don|doesn|isn|aren)'t|never|no)\b (?:contribut\w+|count\w*|carr\w+|trained"
    r"|learned|part of|in|get|have)\b(?: (?:for|to|in|any|on|part of))?(?: the)?(?: (?:loss|gradient|labels?))?",
    re.IGNORECASE,
)
_OF_LOSS = re.compile(r"\bloss\b|\btrained on\b|\blearned\b", re.IGNORECASE)
_ONLY = re.compile(
    r"\bonly\b[^.]{0,30}\b(?:answers?|responses?|completions?|assistant|repl(?:y|ies))\b[^.]{0,40}"
    r"\b(?:loss|trained on|learned|supervised|labels?)\b"
    r"|\bmask(?:s|ed|ing)?(?: out)? (?:the |all |every )?(?:prompts?|instructions?|questions?|users?)\b",
    re.IGNORECASE,
)


_ONE_PART = re.compile(
    r"\bloss\b(?: (?:is|runs|counts|goes|falls|should be|taken|computed|applied|put))* (?:on|over|for|from)(?: the| our)?"
    r" (?P<part>[a-z][\w-]*)(?:'s)?(?: (?P<more>[a-z][\w-]*))? (?:only|alone)\b"
    r"|\bloss\b(?: (?:is|runs|counts|goes|taken|computed|applied|put))* only (?:on|over|for|from)(?: the| our)?"
    r" (?P<one>[a-z][\w-]*)",
    re.IGNORECASE,
)
"""`the loss is taken on the review only`: an answer in the project's own words."""

_NO_PART = re.compile(
    r"^(?:rank|process\w*|main|node|gpus?|cpu|device|head|adapters?|lora|valid\w*|eval\w*|test|dev|train\w*|tokens?|real"
    r"|unpadded|text|last|first|masked|positions?|rows?|batch\w*|epoch\w*|steps?|data|logits|experts?|it|this|that|prompts?"
    r"|questions?|users?)$",
    re.IGNORECASE,
)


def _of_one_part(text: str) -> bool:
    found = _ONE_PART.search(text)
    words = [found[name] for name in ("part", "more", "one") if found[name]] if found is not None else []
    return bool(words) and not any(_NO_PART.match(word) for word in words)


def wants_answers(text: str) -> bool:
    """Whether a sentence says that the loss is on answers alone."""
    if _of_one_part(text) and not NOT_SO.search(text):
        return True
    if (out := _OUT.search(text)) is not None and _OF_LOSS.search(out[0]):
        return not NOT_SO.search(text.replace(out[0], ""))
    return bool(ANSWERS.search(text) or _ONLY.search(text)) and not NOT_SO.search(text)


_APART = re.compile(
    r"\b(never|not|cannot|can't|don't|doesn't|no)\b[^.]*\b(see|sees|attend|attends|leak|leaks|look|mix|contaminat\w*)\b"
    r"|\b(isolated|kept apart|separate documents)\b",
    re.IGNORECASE,
)


_OF_ONE_MODEL = (
    *("tensor_model_parallel_size", "pipeline_model_parallel_size", "tensor_parallel_size", "pipeline_parallel_size"),
    *("context_parallel_size", "sequence_parallel_size", "sequence_parallel_degree", "tp_size", "pp_size", "cp_size"),
)
"""Keys that tell how many processes hold one model, or one row, together."""


def claims_of_comments(job: Job, project: Project) -> Iterator[Said]:
    for file, line, text in comments_of(job, project):
        wrong = list(_arithmetic(job, text, Place(file, line)))
        if not wrong and (claimed := claimed_batch(text)) is not None:
            wrong += _batch(job, claimed, Place(file, line), gpus_told(job, project, text))
        yield from wrong
        yield from _of_the_loss(job, file, line, text)
        yield from _of_the_end(job, file, line, text)
        yield from _of_isolation(job, file, line, text)
        setting = job.setting("attn_implementation")
        if (
            setting is not None
            and setting.value in ("sdpa", "eager")
            and (setting.place.file, setting.place.line) == (file, line)
            and _FLASH.search(text)
            and not NOT_SO.search(text)
        ):
            yield Finding(
                f"The comment says flash attention, and `{job.called('attn_implementation')}` is `{setting.value}`.",
                place=setting.place,
                evidence=Evidence(Level.RESOLVED, {"comment": text, "attn_implementation": setting.value}),
                stake=Stake(AtStake.CLARITY),
                remedy=Remedy(Risk.BEHAVIOURAL, "Make the comment and the setting agree."),
            )


_OF_A_STEP = ("per_device_train_batch_size", "gradient_accumulation_steps", "num_processes")


def _speaks_of(job: Job, file: str, project: Project) -> bool:
    """A file's comments speak of its only job, or of the first of several that have the same batch (one script, started
    with other rates)."""
    jobs = [one for one in project.jobs if file in one.files]
    if jobs[0] is not job or len({one.files for one in jobs}) != 1:
        return False
    return len({tuple(repr(one.get(name)) for name in _OF_A_STEP) for one in jobs}) == 1


def comments_of(job: Job, project: Project) -> Iterator[tuple[str, int, str]]:
    """File, line and text of comments in the files that are this job's alone."""
    held: list[tuple[str, Mapping[int, str]]] = [(one.file, one.comments) for one in project.configs]
    held += [(one.file, {**_docstring(one), **one.comments}) for one in project.scripts]
    for file, comments in held:
        if file in job.files and _speaks_of(job, file, project):
            for line, text in comments.items():
                yield file, line, text
    yield from _in_launchers(job, project, {file for file, _ in held})


def _docstring(script: Script) -> Mapping[int, str]:
    """Of a file's head, line by line."""
    first = script.tree.body[0] if script.tree.body else None
    if (
        not isinstance(first, ast.Expr)
        or not isinstance(first.value, ast.Constant)
        or not isinstance(first.value.value, str)
    ):
        return {}
    lines = first.value.value.split("\n")[:40]
    return {first.lineno + number: line.strip() for number, line in enumerate(lines) if line.strip()}


def _arithmetic(job: Job, text: str, place: Place) -> Iterator[Said]:
    """A product of the batch that does not come to what stands behind its sign of equality."""
    found = _SUM.search(text[:300])
    if found is None or not _ROWS.search(text):
        return
    product = math.prod(int(part) for part in re.findall(r"\d+", found[1]))
    if product != int(found[2]):
        yield Finding(
            f"The comment says `{found[0].strip()}`, and that is {product:,}.",
            place=place,
            evidence=Evidence(Level.TEXT, {"comment": found[0], "product": product}),
            stake=Stake(AtStake.CLARITY),
            remedy=Remedy(Risk.BEHAVIOURAL, "Set what was meant, and mend the comment: one of the numbers is wrong."),
            also=(job.place("per_device_train_batch_size"),),
        )


_OF_THE_LOSS: Mapping[str, bool] = {
    "train_on_inputs": True,
    "train_on_prompt": True,
    "assistant_only_loss": False,
    "completion_only_loss": False,
}
"""Switches by which prompts come into the loss, and how they stand where they do."""


def _of_the_loss(job: Job, file: str, line: int, text: str) -> Iterator[Said]:
    """The comment above or behind a key wants the loss on answers alone, and the key puts it on everything."""
    text = text[:300]
    if not ANSWERS.search(text) or NOT_SO.search(ANSWERS.sub("", text)):
        return
    for name, wrong in _OF_THE_LOSS.items():
        key = given(job, name)
        if key is not None and key.value is wrong and key.place.file == file and 0 <= key.place.line - line <= 1:
            yield Finding(
                f"The comment says loss on the answers alone, and `{name}: {str(wrong).lower()}` trains on the rest too.",
                place=key.place,
                evidence=Evidence(Level.RESOLVED, {"comment": text, name: wrong}),
                stake=Stake(AtStake.RESULT),
                remedy=Remedy(
                    Risk.BEHAVIOURAL,
                    f"Set `{name}: {str(not wrong).lower()}`, or mend the comment.",
                    accuracy="Loss on answers alone.",
                ),
                also=(Place(file, line),),
            )


_ENDS_AT = re.compile(
    r"\b(?:down|decay\w*|anneal\w*|fall\w*|end\w*)\s+(?:\w+\s+)?(?:to|at)\s+(a\s+(?:tenth|fifth|quarter|third|half)|1?\d\s?%|0?\.\d+|1/\d+"
    r"|\d(?:\.\d+)?e-\d+)",
    re.IGNORECASE,
)


def _of_the_end(job: Job, file: str, line: int, text: str) -> Iterator[Said]:
    """The comment at the schedule names a rate that it ends at, and the schedule ends at zero."""
    key, found = job.setting("lr_scheduler_type"), _ENDS_AT.search(text[:300])
    if key is None or found is None or key.value not in ("cosine", "linear") or key.place.file != file:
        return
    if job.get("lr_scheduler_kwargs") or not -1 <= key.place.line - line <= 2 or NOT_SO.search(text):
        return
    yield Finding(
        f"The comment has the learning rate end at {found[1]}, and `{job.called('lr_scheduler_type')}: "
        f"{key.value}` goes down"
        " to zero.",
        place=key.place,
        evidence=Evidence(Level.RESOLVED, {"comment": text, "lr_scheduler_type": key.value}),
        stake=Stake(AtStake.CLARITY),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            "Set `lr_scheduler_type: cosine_with_min_lr` and `lr_scheduler_kwargs: {min_lr_rate: 0.1}`, or mend "
            "the comment.",
            accuracy="The last updates are larger.",
        ),
        also=(Place(file, line),),
    )


def _of_isolation(job: Job, file: str, line: int, text: str) -> Iterator[Said]:
    """The comment at the keys of packing says that documents are kept apart, and `wrapped` joins them."""
    key = job.setting("packing_strategy")
    if key is None or key.value != "wrapped" or job.get("packing") is not True or key.place.file != file:
        return
    if _APART.search(text[:300]) and 0 <= key.place.line - line <= 4:
        yield Finding(
            "The comment says that packed documents do not see each other, and `packing_strategy: wrapped` joins"
            " them: they"
            " do.",
            place=Place(file, line),
            evidence=Evidence(Level.RESOLVED, {"comment": text, "packing_strategy": "wrapped"}),
            stake=Stake(AtStake.CLARITY),
            remedy=Remedy(Risk.BEHAVIOURAL, "Set `packing_strategy: bfd`, or mend the comment."),
            also=(key.place,),
        )


def _in_launchers(job: Job, project: Project, known: set[str]) -> Iterator[tuple[str, int, str]]:
    """Comments of shell files and Makefiles."""
    for file in job.files:
        if file in known or file not in project.texts or file.endswith((".json", ".md")):
            continue
        if len([one for one in project.jobs if file in one.files]) != 1:
            continue
        for row, line in enumerate(lines_of(project.texts[file]), 1):
            if line.lstrip().startswith("#") and not line.startswith("#!"):
                yield file, row, line.lstrip(" \t#")


def claimed_batch(comment: str) -> int | None:
    """The number of examples a step that a comment names; None: it names none for certain."""
    found = _CLAIM.search(comment)
    if found is None:
        each = _EACH.search(comment) or _SEES.search(comment)
        return int(each[1]) if each is not None else None
    rest = found[1]
    if result := _RESULT.search(rest):
        # `4 x 8 = 32`, the last of several.
        return int(_RESULT.findall(rest)[-1]) if result else None
    plain, product = _PLAIN.search(rest), _PRODUCT.search(rest)
    if plain and (product is None or product.start(1) != plain.start(1)):
        return int(plain[1])
    return math.prod(int(part) for part in re.findall(r"\d+", product[1])) if product else None


def ranks_share_rows(job: Job) -> bool:
    """Whether several processes work on the same rows, so that a step has fewer of them than its processes tell."""
    sizes = (job.get(key) for key in _OF_ONE_MODEL)
    return any(type(size) is int and size > 1 for size in sizes)


def _batch(job: Job, claimed: int, place: Place, devices: int | None) -> Iterator[Said]:
    """devices: processes of a step; None: that is not known."""
    if ranks_share_rows(job):
        return
    rows, steps = number(job, "per_device_train_batch_size"), number(job, "gradient_accumulation_steps")
    each, known = int((rows or 0) * (steps or 0)), devices is not None
    if not rows or not steps or (job.get("packing") is True and (not known or each == claimed)):
        return  # of packed rows a comment may count the examples, or those of one process
    if known and devices is not None:
        real = each * devices
        if real == claimed:
            return
        comes_to = (
            f"{int(rows)} rows x {int(steps)} accumulated x {devices} process{'es' if devices > 1 else ''} are {real}"
        )
    elif each and claimed % each:
        comes_to = (
            f"{int(rows)} rows x {int(steps)} accumulated are {each} a process, and no number of processes makes it"
        )
    else:
        return
    yield Finding(
        f"The comment says {claimed} examples a step, and the settings come to another number: {comes_to}.",
        place=place,
        evidence=Evidence(
            Level.RESOLVED, {"comment": claimed, "rows": rows, "accumulation": steps, "processes": devices}
        ),
        stake=Stake(AtStake.CLARITY),
        remedy=Remedy(Risk.BEHAVIOURAL, "Make the comment and the settings agree."),
    )

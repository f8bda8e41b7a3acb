"""A mark of answers that is tokenised by itself, for a tokenizer that gives the beginning of a text other tokens."""

import re
from collections.abc import Sequence

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.rendered_text import RenderedText, rendered_texts
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.together import code, together
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Stake
from dynotune.audit.models import known
from dynotune.audit.place import Place

_SENTENCEPIECE = (("llama", 32_000), ("mistral", 32_000))
"""Types and vocabularies whose tokenizer puts a space before a text's beginning, and so into its first token."""


def mark_out_of_context(mark: str, place: Place, script: Script, project: Project) -> Finding | None:
    """The mark stands behind a line's end in the rows, where no space is before it."""
    name = next((job.get("model_name_or_path") for job in project.jobs if script.file in job.files), None)
    model = known(name)
    if model is None or (model.model_type, model.vocabulary) not in _SENTENCEPIECE:
        return None
    texts = rendered_texts(script, project)
    behind = next((one for one in texts if _behind_a_line(mark.strip(), one, together(script, project))), None)
    if behind is None:
        return None
    return Finding(
        f"Answers are looked for by the tokens of `{mark.strip()}` alone, and the tokenizer of `{name}` puts a space before"
        " a text's beginning: behind the line's end that rows have there its first token is another, so it is not found, and"
        " every label is masked.",
        place=place,
        evidence=Evidence(Level.TEXT, {"mark": mark.strip(), "vocabulary": model.vocabulary}),
        stake=Stake(AtStake.RESULT),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            r"Give it as tokens with their context: `tokenizer.encode('\n' + mark, add_special_tokens=False)[2:]`.",
            accuracy="The loss is on the answers.",
            measure="Print the labels of one batch that are not -100.",
        ),
        also=(behind.place, *behind.also),
    )


def _behind_a_line(core: str, text: RenderedText, near: Sequence[Script]) -> bool:
    """The mark as such, or a name that it is given to."""
    names = {
        found
        for one in near
        for found in re.findall(
            rf"^\s*(\w+)(?:\s*:\s*\w+)?\s*=\s*[\"'](?:\\n)*{re.escape(core)}[^\"'\n]{{0,4}}[\"']", code(one), re.M
        )
    }
    named = "|".join(re.escape(one) for one in sorted(names))
    ways = rf"\\n{re.escape(core)}" + (rf"|\\n(?:\{{|[\"']\s*\+\s*)(?:{named})\b" if named else "")
    return re.search(ways, text.source) is not None

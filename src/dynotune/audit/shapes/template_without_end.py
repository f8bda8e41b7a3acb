"""A chat template of the project's own that writes nothing behind an assistant's turn which could end it."""

import re
from collections.abc import Iterator

from dynotune.audit.facts.chat_templates import ChatTemplate, of_job, of_scripts
from dynotune.audit.facts.job import Job, Method
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.together import connected
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place

_ENDS = re.compile(
    r"eos|<[^<>\s]*(?:end|eot|eom|/s)[^<>\s]*>|\[/?EOS\]|\bend_\w*token|separator|\bsep\b", re.IGNORECASE
)
_CONTENT = re.compile(r"\.content\b|\[['\"]content['\"]\]|\.get\(['\"]content")
_ASSISTANT = re.compile(r"assistant|model|gpt|\belse\b", re.IGNORECASE)


def template_without_end(job: Job, project: Project) -> Iterator[Said]:
    if job.method is not Method.SFT or job.get("packing") is True:
        return
    start = next((one for one in project.scripts if one.file in job.files), None)
    program = connected(start, project) if start is not None else ()
    for template in (*of_job(job, project), *of_scripts(program, project)):
        text = template.text
        if not text or "for " not in text or not _CONTENT.search(text) or _ENDS.search(text):
            continue
        if any(
            re.search(r"\+\s*\w*\.?eos_token|eos_token_id\]|add_eos_token\W{1,4}True", one.source) for one in program
        ):
            continue
        home = _line(template, text)
        yield Finding(
            "The chat template writes no end behind an assistant's turn, and the trainer adds none to conversations: the"
            " model is never taught to stop.",
            place=home,
            also=(template.place,) if home != template.place else (),
            evidence=Evidence(Level.TEXT, {"template": template.shown, "end token": None}),
            stake=Stake(AtStake.RESULT),
            remedy=Remedy(
                Risk.BEHAVIOURAL,
                "Write `{{ eos_token }}` behind the content of assistant turns.",
                effort=Effort.LINE,
                accuracy="The end of an answer is learned.",
                measure="Print the last ids of a rendered row.",
            ),
        )
        return


def _line(template: ChatTemplate, text: str) -> Place:
    """Of the last content that is written behind the assistant's mark, in a template's file."""
    home = template.home or template.place
    lines = text.split("\n")
    if template.home is None or template.home.line != 1 or len(lines) < 2 or home.file.endswith(".py"):
        return home
    after = next((number for number, line in enumerate(lines) if _ASSISTANT.search(line)), 0)
    held = [number for number, line in enumerate(lines) if _CONTENT.search(line) and number >= after]
    return Place(home.file, held[0] + 1) if held else home

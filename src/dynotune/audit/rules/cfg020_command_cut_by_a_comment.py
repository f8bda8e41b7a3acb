"""CFG020: a comment within a command of several lines ends it."""

import re
from collections.abc import Iterator

from dynotune.audit.facts.launch import SHELL
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.rule import Example, Group, Page, Rule, Subject


def check(project: Project, whole: Project) -> Iterator[Said]:
    for file, text in project.texts.items():
        if not file.endswith(tuple(SHELL)):
            continue
        lines = text.split("\n")
        comments: set[int] | None = None
        for number in range(1, len(lines) - 1):
            goes_on = re.search(r"\S\s*\\$", lines[number - 1]) and not lines[number - 1].lstrip().startswith("#")
            if not goes_on or not lines[number].lstrip().startswith("#"):
                continue
            rest = next((line for line in lines[number + 1 :] if not line.lstrip().startswith("#")), "")
            if not re.match(r"\s*--?\w", rest):
                continue
            if comments is None:
                comments = _comments(text)
            if number + 1 not in comments:
                continue
            yield Finding(
                f"The comment ends the command that goes on above it:"
                f" `{rest.strip().rstrip(chr(92)).strip()[:60]}` and what follows"
                " is a command of its own, and the program runs without it.",
                place=Place(file, number + 1, 1, number + 1, len(lines[number]) + 1),
                evidence=Evidence(Level.TEXT, {"comment": lines[number].strip()[:80]}),
                stake=Stake(AtStake.RESULT),
                remedy=Remedy(
                    Risk.BEHAVIOURAL,
                    "Take the comment out of the command.",
                    accuracy="The flags below it count from then on.",
                ),
                also=(Place(file, number + 2),),
            )


def _comments(text: str) -> set[int]:
    """Lines of comments, as the shell's grammar tells them, but those in arrays: there a comment ends nothing. What looks
    like one in a here-document is text."""
    from dynotune.audit.shell_grammar import nodes, parse_shell

    tree = parse_shell(text.encode("utf-8", "surrogatepass"))
    return {node.start_point.row + 1 for node in nodes(tree, {"array"}) if node.type == "comment"}


_RUN = """trl sft --model_name_or_path Qwen/Qwen2.5-0.5B \\
    --dataset_name data.jsonl \\
{}    --learning_rate 1e-5
"""
RULE = Rule(
    code="CFG020",
    name="command-cut-by-a-comment",
    summary="A comment within a command of several lines ends it.",
    group=Group.CONFIGURATION,
    subject=Subject.PROJECT,
    check=check,
    page=Page(
        what="A backslash at the end of a line joins the next one; a comment there runs to that line's end and"
        " joins nothing.",
        why="The program starts without the flags below, with its defaults, and trains for days; the shell's"
        " `--flag: command"
        " not found` comes after it.",
        detected="E0: a line that goes on, a comment, and a line that begins with a flag; not in an array or a"
        " here-document.",
        proven="`bash -x` prints the command as it runs.",
        deliberate=("None that is known.",),
        sources=("The shell's grammar: comments and line continuation",),
    ),
    bad=Example({"run.sh": _RUN.format("#    --packing true \\\n")}, says="ends the command"),
    good=Example({"run.sh": _RUN.format("")}),
)

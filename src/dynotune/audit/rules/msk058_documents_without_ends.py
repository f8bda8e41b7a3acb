"""MSK058: documents are joined into blocks without anything between them."""

import ast
import re
from collections.abc import Iterator

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import place_of
from dynotune.audit.facts.together import code, connected
from dynotune.audit.facts.training import TRAINS
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Example, Group, Page, Rule, Subject
from dynotune.audit.shapes.documents_in_a_file import documents_in_a_file, joins_ids
from dynotune.audit.shapes.documents_joined_later import documents_joined_later

_ENDS = re.compile(
    r"\b\w*(eos|eot|bos)\w*|endoftext|end_of_text|sep_token|\bsep\b|separator|</s>|delimiter|build_inputs_with_special"
)
_OF_A_ROW = re.compile(
    r"message|(?<!re)turn|conversation|\brole|prompt|answer|question|response|-100|IGNORE|segment|\bpart", re.IGNORECASE
)
_OF_DOCUMENTS = re.compile(r"doc|text|line|article|page|story|file|example|row|sample|corpus|data", re.IGNORECASE)
_BLOCK = re.compile(r"block|seq_?len|context|n_ctx|ctx|chunk|window|max_len|\bT\b|\bL\b", re.IGNORECASE)


def check(script: Script, project: Project) -> Iterator[Said]:
    yield from documents_in_a_file(script, project, _ENDS)
    yield from documents_joined_later(script, project, _ENDS, _BLOCK, TRAINS)
    if "add_special_tokens" not in script.source and "encode_ordinary" not in script.source:
        return
    if not any(TRAINS.search(code(one)) for one in connected(script, project)):
        return
    for room in _rooms(script):
        text = ast.unparse(room)
        if _ENDS.search(text) or not _is_cut(room):
            continue
        for loop in (node for node in ast.walk(room) if isinstance(node, ast.For)):
            head = f"{ast.unparse(loop.target)} {ast.unparse(loop.iter)}"
            if _OF_A_ROW.search(ast.unparse(loop)) or not _OF_DOCUMENTS.search(head):
                continue
            joins = next((node for node in ast.walk(loop) if joins_ids(node, _bare)), None)
            if joins is not None:
                yield _finding(script, joins)
                return


def _rooms(script: Script) -> Iterator[ast.AST]:
    """Functions, each class's methods together: what one method joins, another one cuts."""
    for node in script.tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield node


def _bare(node: ast.expr) -> bool:
    """The ids of one text as a tokenizer gives them, without special tokens."""
    while isinstance(node, ast.Subscript | ast.Attribute):
        node = node.value
    if not isinstance(node, ast.Call):
        return False
    if ast.unparse(node.func).endswith(".encode_ordinary"):
        return True
    return any(
        word.arg == "add_special_tokens" and isinstance(word.value, ast.Constant) and word.value.value is False
        for word in node.keywords
    )


def _is_cut(room: ast.AST) -> bool:
    """Into pieces of one length: `ids[: self.seq_len]`, `buffer[i : i + block]`, `view(-1, block)`."""
    for node in ast.walk(room):
        if isinstance(node, ast.Slice) and node.upper is not None and _BLOCK.search(ast.unparse(node.upper)):
            return True
        shapes = isinstance(node, ast.Call) and re.search(r"\.(view|reshape)$", ast.unparse(node.func))
        if shapes and isinstance(node, ast.Call) and any(_BLOCK.search(ast.unparse(one)) for one in node.args):
            return True
    return False


def _finding(script: Script, joins: ast.AST) -> Finding:
    return Finding(
        f"`{ast.unparse(joins)[:70]}` joins one text to the next without an end or a beginning between them: the model never"
        " sees where a document ends, and learns to go on in another one.",
        place=place_of(script, joins),
        evidence=Evidence(Level.TEXT, {"joined": ast.unparse(joins)[:80], "between": None}),
        stake=Stake(AtStake.RESULT),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            "Put `tokenizer.eos_token_id` behind each document's ids (or the beginning token before them).",
            effort=Effort.LINE,
            accuracy="Ends of documents are learned.",
            measure="Decode one block.",
        ),
    )


_SCRIPT = """from transformers import AutoTokenizer, Trainer


def blocks(documents, tokenizer, block_size=1024):
    ids = []
    for text in documents:
        ids += tokenizer(text, add_special_tokens=False)["input_ids"]%s
    return [ids[at : at + block_size] for at in range(0, len(ids), block_size)]


Trainer(model=model, args=args, train_dataset=blocks(texts, AutoTokenizer.from_pretrained("gpt2"))).train()
"""
RULE = Rule(
    code="MSK058",
    name="documents-without-ends",
    summary="Documents are joined into blocks with nothing between them.",
    group=Group.CORRECTNESS,
    subject=Subject.SCRIPT,
    check=check,
    page=Page(
        what="Texts are tokenised without special tokens, put one behind the other and cut into blocks of one length.",
        why="A token between them is what tells the model that what follows has nothing to do with what came before; without"
        " it generation does not end, and the first words of each document are predicted from another one.",
        detected="E0: a loop over documents that adds ids of a tokenizer called with `add_special_tokens=False` (or"
        " tiktoken's `encode_ordinary`) to what it has, in a function or class that cuts blocks and names no end or"
        " beginning token, in a program that trains. Loops over the turns of one conversation are not reported. The same of"
        " a function that tokenises columns of text so (or by a tokenizer that is known to add nothing), where another one"
        " joins a batch of them and cuts it; and of a program that"
        " writes them to one file of tokens, which another trains on.",
        proven="Decode one block and look for the places where documents meet.",
        deliberate=("The texts are lines or chapters of one document.",),
        sources=("GPT-2 and GPT-3's reports: documents in a context are delimited with an end-of-text token",),
    ),
    bad=Example({"train.py": _SCRIPT % ""}, says="never sees where a document ends"),
    good=Example({"train.py": _SCRIPT % " + [tokenizer.eos_token_id]"}),
)

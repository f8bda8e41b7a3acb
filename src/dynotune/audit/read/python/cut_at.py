"""The length at which a script cuts its rows, where no setting of its trainer says so: what its tokenizer is called with, or
its rows are cut by."""

import ast
import re
from dataclasses import replace

from dynotune.audit.facts.job import Job, Trainer
from dynotune.audit.facts.rooms import own_nodes
from dynotune.audit.facts.setting import Setting
from dynotune.audit.read.python import files
from dynotune.audit.read.python.evaluator import Evaluator
from dynotune.audit.read.python.module import Module
from dynotune.audit.read.python.value import setting

_OWN = (Trainer.TRANSFORMERS, Trainer.TORCH)


def with_length(job: Job, evaluator: Evaluator) -> Job:
    """The job with `max_length`, where all calls that truncate in its files agree on one."""
    if job.trainer not in _OWN or job.setting("max_length") is not None:
        return job
    module, others = evaluator.module, evaluator.others
    named = (files.module_of(dotted, module, others) for dotted in module.imports.values())
    near = {one.file: one for one in (module, *(found[0] for found in named if found is not None))}
    said = [one for other in near.values() for one in _lengths(evaluator.fresh().elsewhere(other), other)]
    said = said or [one for other in near.values() for one in _cuts(evaluator.fresh().elsewhere(other), other)]
    said = said or [one for other in near.values() for one in _windows(evaluator.fresh().elsewhere(other), other)]
    if not said or any(one.value != said[0].value for one in said):
        return job
    return replace(job, settings={**job.settings, "max_length": said[0]})


LEAST, MOST = 32, 1 << 20
"""Tokens of a row that somebody cuts rows at."""

_CUT = re.compile(r"ids|token|prompt|answer|response|completion|chosen|labels", re.IGNORECASE)

_CHARACTERS = re.compile(r"text|content|[\"']", re.IGNORECASE)


def _cuts(evaluator: Evaluator, module: Module) -> list[Setting]:
    """`(prompt + answer)[:max_length]` in a function that makes rows."""
    found: list[Setting] = []
    for function, scope in module.scopes.items():
        if not isinstance(function, ast.FunctionDef) or not _ROWS.search(ast.unparse(function)):
            continue
        for node in own_nodes(function):
            if not isinstance(node, ast.Subscript) or not isinstance(node.slice, ast.Slice) or node.slice.lower:
                continue
            end = node.slice.upper
            if not isinstance(end, ast.Name | ast.Attribute) or not _NAMED.search(ast.unparse(end)):
                continue
            joined = isinstance(node.value, ast.BinOp) and not _CHARACTERS.search(ast.unparse(node.value))
            if not joined and not _CUT.search(ast.unparse(node.value)):
                continue  # which may be a text's characters
            value = evaluator.fresh().value(end, scope)
            if type(value.value) is not int or value.others or not LEAST <= value.value <= MOST:
                return []
            found.append(setting("max_length", value, module.place(end, "max_length")))
    return found


def _windows(evaluator: Evaluator, module: Module) -> list[Setting]:
    """`data[i : i + block_size]` of a stream of tokens: rows of one length, and of 1 more for what it predicts."""
    found: list[Setting] = []
    for function, scope in module.scopes.items():
        for node in own_nodes(function) if isinstance(function, ast.FunctionDef | ast.Module) else ():
            held = node.slice if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice) else None
            if held is None or held.lower is None or not isinstance(held.upper, ast.BinOp):
                continue
            lower, upper = ast.unparse(held.lower), ast.unparse(held.upper)
            words = upper.replace(" ", "")
            if not words.startswith(lower.replace(" ", "") + "+"):
                continue
            ends = [one for one in ast.walk(held.upper) if isinstance(one, ast.Name | ast.Attribute)]
            named = {ast.unparse(one): one for one in ends if _NAMED.search(ast.unparse(one))}
            if len(named) == 1:
                end = next(iter(named.values()))
                value = evaluator.fresh().value(end, scope)
                if type(value.value) is not int or value.others or not LEAST <= value.value <= MOST:
                    return []
                found.append(setting("max_length", value, module.place(end, "max_length")))
    return found


_ROWS = re.compile(r"input_ids|_ids['\"]|tokeniz|tok\(")
_NAMED = re.compile(r"max_?(?:seq_?)?(?:len|tokens)|cutoff|block_size|seq_len|context|ctx|window", re.IGNORECASE)


def _lengths(evaluator: Evaluator, module: Module) -> list[Setting]:
    found: list[Setting] = []
    for site in module.sites:
        words = {word.arg: word.value for word in site.node.keywords}
        if "max_length" not in words or not {"truncation", "padding"} & set(words):
            continue
        value = evaluator.fresh().value(words["max_length"], site.scope)
        if isinstance(value.value, int) and not isinstance(value.value, bool) and not value.others:
            found.append(setting("max_length", value, module.place(words["max_length"], "max_length")))
        else:
            return []
    return found

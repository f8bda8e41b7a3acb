"""Functions that mask the prompt where they find the answer, and return the labels whole where they do not."""

import ast
import re

from dynotune.audit.shapes.masked_where_found import masked_where_found

STOPS = ("raise", "sys.exit", "exit(", "SystemExit", "os._exit", "pytest.skip")
"""What a branch says that lets nobody go on."""

LONGEST = 5_000
"""Characters of a function that is looked at: what follows goes back and forth over a line, and nobody masks in more."""

_NOT_THERE = re.compile(r"== *-1|< *0|is None|\bnot in\b|^not \w+$|len\(\w+\) *== *0")
_NOTHING_LABELLED = re.compile(
    r"\ball\(.*-100|-100.*\.all\(\)|^not any\(.*!= -100|== \{-100\}|^not \(?.*!= -100\)?\.any\(\)|\.count\(-100\) == len\("
)
"""What a branch asks of labels that are all taken out."""

_WHOLE = re.compile(
    r"(?:list\(|torch\.tensor\()?[\w.\[\]'\"]*(?:ids|tokens)\b[\w\]'\"]*\)?(?:\.(?:copy|clone)\(\))?(?:\[:\])?"
)
_COPIED = re.compile(
    r"labels?\w* = (list\()?[\w.\[\]'\"]*(ids|input_ids|tokens)[\w.\[\]'\"]*(\.(copy|clone)\(\))?(\[:\])?\)?$",
    re.MULTILINE,
)


def left_whole(function: ast.FunctionDef) -> ast.AST | None:
    """Where the function leaves a row's labels as they are, since no answer was found in it."""
    if len(ast.unparse(function)) > LONGEST:
        return None
    return (
        _handled(function)
        or _falls_through(function)
        or _takes_everything(function)
        or _only_where_found(function)
        or _in_one_expression(function)
        or masked_where_found(function)
    )


def _masking(node: ast.AST) -> bool:
    return isinstance(node, ast.Assign | ast.AugAssign) and bool(
        re.search(r"label\w*(\[[^=]*\])*(\[.*\])? = .*(-100|IGNORE)", ast.unparse(node))
    )


def _falls_through(function: ast.FunctionDef) -> ast.AST | None:
    """A search in a loop masks and leaves; what stands behind the loop returns labels that nobody masked."""
    text = ast.unparse(function)
    copied = _COPIED.search(text)
    if copied is None or any(isinstance(node, ast.Raise) for node in ast.walk(function)):
        return None
    for number, loop in enumerate(function.body):
        if not isinstance(loop, ast.For | ast.While) or loop.orelse:
            continue
        under = [
            one for one in ast.walk(loop) if isinstance(one, ast.If) and any(_masking(node) for node in ast.walk(one))
        ]
        leaves = [one for branch in under for one in ast.walk(branch) if isinstance(one, ast.Return | ast.Break)]
        rest = function.body[number + 1 :]
        answers = next((one for one in rest if isinstance(one, ast.Return)), None)
        if under and leaves and answers is not None and not any(isinstance(one, ast.If) for one in rest):
            return answers if "label" in ast.unparse(answers) else None
    return None


def _handled(function: ast.FunctionDef) -> ast.AST | None:
    """`except ValueError: return labels`, or `start = 0`, where the search of the answer raises."""
    text = ast.unparse(function)
    for node in ast.walk(function):
        if not isinstance(node, ast.Try) or ("-100" not in text and "IGNORE" not in text):
            continue
        tried = "\n".join(map(ast.unparse, node.body))
        for handler in node.handlers if re.search(r"\.r?index\(|find\w*\(|search\w*\(", tried) else ():
            then = "\n".join(map(ast.unparse, handler.body))
            gives = re.search(r"^return \w*labels?\w*$|\b(start|idx|index|pos|at|cut|end)\w* = 0$", then, re.MULTILINE)
            silent = all(isinstance(one, ast.Pass) or _speaks(one) for one in handler.body)
            options = [one.arg for one in function.args.args]
            masked = silent and any(_masking(one) for top in node.body for one in ast.walk(top))
            if masked and "label" in text and (_COPIED.search(text) or any("label" in one for one in options)):
                return handler.body[-1]
            if gives and _COPIED.search(text) and not any(stop in then for stop in (*STOPS, "-100", "IGNORE")):
                return handler.body[-1]
    return None


def _speaks(node: ast.stmt) -> bool:
    """`print(...)`, `warnings.warn(...)`, `logger.debug(...)`."""
    return isinstance(node, ast.Expr) and bool(
        isinstance(node.value, ast.Call)
        and re.search(r"(^|\.)(print|warn|warning|debug|info|error)$", ast.unparse(node.value.func))
    )


def _only_where_found(function: ast.FunctionDef) -> ast.AST | None:
    """`cut = find(...)`, `if cut > 0: labels[:cut] = -100`, and nothing for the other rows."""
    text = ast.unparse(function)
    if any(isinstance(one, ast.Raise) for one in ast.walk(function)):
        return None
    for node in ast.walk(function):
        if not isinstance(node, ast.If) or node.orelse or not any(_masking(one) for one in ast.walk(node)):
            continue
        if not all(_masking(one) or _masks_in_turn(one) for one in node.body) and not (
            _COPIED.search(text) and not _leaves(node)
        ):
            continue
        condition = ast.unparse(node.test)
        test = re.fullmatch(r"(\w+)( != -1| > -1| >= 0| > 0| is not None)?", condition)
        searched = test and re.search(
            rf"\b{test[1]} = [^\n=]*(find|search|index|locate|match)\w*\(", text, re.IGNORECASE
        )
        parts = re.fullmatch(r"len\((\w+)\) (?:== 2|> 1|>= 2)", condition)
        searched = searched or (parts and re.search(rf"\b{parts[1]} = [^\n=]*\.r?split\(", text))
        inside = set(ast.walk(node))
        alone = not any(isinstance(one, ast.If) and one not in inside for one in ast.walk(function))
        there = re.fullmatch(r"(['\"].*['\"]|[\w.]+) in \w*(text|rendered|string|full|content)\w*", condition)
        if searched or (there and alone and not _leaves(node)):
            return node
    return None


def _masks_in_turn(node: ast.stmt) -> bool:
    """`for i in range(cut): labels[i] = -100`."""
    return isinstance(node, ast.For) and all(map(_masking, node.body))


def _leaves(node: ast.If) -> bool:
    """What stands behind it may be for the other rows."""
    return any(isinstance(one, ast.Return | ast.Continue) for one in ast.walk(node))


def _takes_everything(function: ast.FunctionDef) -> ast.AST | None:
    """`if start == -1: start = 0`, `else: labels = ids.copy()` and the like."""
    for node in ast.walk(function):
        if not isinstance(node, ast.If):
            continue
        test = ast.unparse(node.test)
        nothing = _NOTHING_LABELLED.search(test)
        missing = node.body if nothing or _NOT_THERE.search(test) else []
        found = node.orelse if missing else node.body
        options = {one.arg for one in function.args.args} | _columns(function)
        if test.endswith("is None") and test.partition(" ")[0] in options:
            continue  # an option of the caller's, or a column that not every row has
        if not missing and node.orelse and re.search(r"!= *-1|>= *0|> *-1|is not None|\bin\b", ast.unparse(node.test)):
            missing, found = node.orelse, node.body
        text = "\n".join(ast.unparse(one) for one in missing)
        if not missing or any(stop in text for stop in (*STOPS, "-100", "IGNORE", "continue", "return None")):
            continue
        zero = re.search(
            r"\b(start|idx|index|pos|position|cut|end|prompt_len|offset|split)\w* = 0$", text, re.MULTILINE
        )
        whole = re.search(
            r"labels?\w*['\"\]]*(?:\[:\])? ?[=:] ?(list\(|torch\.tensor\()?[\w.\[\]'\"]*(ids|tokens)\b[\w\]'\"]*"
            r"(\.(copy|clone)\(\))?(\[:\])?\)?",
            text,
        )
        as_it_is = re.search(r"return (list\()?[\w.]*(ids|tokens)(\.(copy|clone)\(\))?(\[:\])?\)?$", text)
        whole = whole or (as_it_is if "label" in function.name else None)
        back = whole is None and _hands_back(node, missing[-1], function)
        masks = "-100" in ast.unparse(function) or "IGNORE" in ast.unparse(function)
        late = whole and (nothing or _searched_in_a_loop(node, function))
        if masks and (zero or whole or back) and (found or zero or "return" in text or late):
            return missing[0]
    return None


def _columns(function: ast.FunctionDef) -> set[str]:
    """Names that stand for a part of an argument (`row.get("prompt")`), which nobody searched for."""
    of = "|".join(re.escape(one.arg) for one in function.args.args)
    part = re.compile(rf"(?:{of})(?:\.get\([^()]*\)|\[[^\[\]]*\])|getattr\((?:{of}), [^()]*\)")
    return {
        node.targets[0].id
        for node in ast.walk(function)
        if of and isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        if part.fullmatch(ast.unparse(node.value))
    }


def _in_one_expression(function: ast.FunctionDef) -> ast.AST | None:
    """`list(ids) if start is None else [-100] * start + ids[start:]`, and a place that is 0 where nothing was found."""
    text = ast.unparse(function)
    if "label" not in text or not re.search(r"-100|IGNORE", text):
        return None
    options = {one.arg for one in function.args.args}
    columns = options | _columns(function)
    for node in ast.walk(function):
        given = columns if isinstance(node, ast.IfExp) and " in " not in ast.unparse(node.test) else options
        if isinstance(node, ast.IfExp) and {one.id for one in ast.walk(node.test) if isinstance(one, ast.Name)} - given:
            test, chosen, other = (ast.unparse(one) for one in (node.test, node.body, node.orelse))
            if not _NOT_THERE.search(test):
                chosen, other = other, chosen
                if not re.search(r"!= *-1|>= *0|> *-1|is not None", test):
                    continue
            if _WHOLE.fullmatch(chosen) and re.search(r"-100|IGNORE", other):
                return node
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            value, name = ast.unparse(node.value), node.targets[0].id
            searched = re.search(
                r"^max\((?:0, )?[^\n]*\b\w*(?:find|index|search|locate)\w*\([^\n]*\)(?:, 0)?\)$", value
            )
            none = re.match(r"0 if (\w+) (?:== -1|< 0|is None) else", value)
            found = none and re.search(rf"\b{none[1]} = [^\n]*(?:find|index|search|locate)\w*\(", text)
            masked = rf"-100\] \* {name}\b|\[(?:0)?:{name}\] = |range\({name}\)"
            if (searched or found) and re.search(masked, text) and not re.search(rf"if (?:not )?{name}\b", text):
                return node
    return None


def _searched_in_a_loop(branch: ast.If, function: ast.FunctionDef) -> bool:
    """`while pos != -1:` labels what is found, and so does nothing for a row in which nothing was."""
    tested = {one.id for one in ast.walk(branch.test) if isinstance(one, ast.Name)} - {"len"}
    return any(
        isinstance(node, ast.While | ast.For)
        and tested & {one.id for one in ast.walk(_heard(node)) if isinstance(one, ast.Name)}
        and "label" in ast.unparse(node)
        for node in ast.walk(function)
    )


def _heard(loop: ast.While | ast.For) -> ast.expr:
    return loop.test if isinstance(loop, ast.While) else loop.iter


def _hands_back(branch: ast.If, last: ast.stmt, function: ast.FunctionDef) -> bool:
    """`return labels`, as the function got them, where it hands back a masked copy of them otherwise; and what it looked at
    is the outcome of its own search, not an option that it was given."""
    given = re.fullmatch(r"return (?:list\()?(\w+)(?:\.(?:copy|clone)\(\)|\[:\]|\))?", ast.unparse(last))
    options = {one.arg for one in function.args.args}
    tested = {one.id for one in ast.walk(branch.test) if isinstance(one, ast.Name)} - {"len"}
    if given is None or given[1] not in options or tested <= options:
        return False
    masked = rf"return .*(-100|IGNORE).*\b{given[1]}\b|\b{given[1]}\b.*\[.*\] = .*(-100|IGNORE)"
    return re.search(masked, ast.unparse(function)) is not None

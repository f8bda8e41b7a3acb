"""Rows of the fuzz: pairs in the formats that TRL takes, and what makes some of them remarkable."""

import json
import random
from typing import Any

from tests.tiny import CORPUS

Row = dict[str, Any]

FORMS = ("text", "implicit-text", "chat", "implicit-chat", "turns", "tools", "variables")
ODD = ("naïve", "中文", "🙂", "a\nb", "x=1;", "\tdef", "  two  spaces", "don't", "1234567")
BORDERS = (("", " "), (" ", ""), ("", ""), ("\n\n", ""), (" ", " "), (": ", ""))
"""What ends a prompt, and what begins its answers: tokens merge over some of them."""


def words(chance: random.Random, most: int = 12) -> str:
    known = " ".join(CORPUS).split()
    return " ".join(chance.choice(ODD if chance.random() < 0.08 else known) for _ in range(chance.randint(1, most)))


def row_of(chance: random.Random, form: str) -> Row:
    """A pair of `form`."""
    prompt, good, bad = words(chance), words(chance), words(chance) + "!"
    if chance.random() < 0.2:  # both answers begin alike
        alike = words(chance, 3)
        good, bad = f"{alike} {good}", f"{alike} {bad}"
    if chance.random() < 0.1:
        prompt = " ".join(words(chance) for _ in range(8))
    if chance.random() < 0.1:
        good = " ".join(words(chance) for _ in range(6))
    if form in ("text", "implicit-text"):
        end, begin = chance.choice(BORDERS)
        if form == "text":
            return {"prompt": prompt + end, "chosen": begin + good, "rejected": begin + bad}
        return {"chosen": f"{prompt} # A{begin}{good}", "rejected": f"{prompt} # B{begin}{bad}"}
    turns = [{"role": "user", "content": prompt}]
    if chance.random() < 0.3:
        turns.insert(0, {"role": "system", "content": words(chance)})
    if form == "turns":
        turns += [{"role": "assistant", "content": words(chance)}, {"role": "user", "content": words(chance)}]
    answers = [[{"role": "assistant", "content": text}] for text in (good, bad)]
    if form == "turns" and chance.random() < 0.4:
        answers[0] += [{"role": "user", "content": words(chance)}, {"role": "assistant", "content": words(chance)}]
    if form == "implicit-chat":
        return {"chosen": turns + answers[0], "rejected": turns + answers[1]}
    more: Row = {}
    if form == "tools":
        more["tools"] = json.dumps([tool(chance)])
    elif form == "variables":
        more["chat_template_kwargs"] = {"enable_thinking": chance.random() < 0.5}
    return {"prompt": turns, "chosen": answers[0], "rejected": answers[1], **more}


def tool(chance: random.Random) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {"x": {"type": "number"}}}
    described = {"name": chance.choice(["add", "look_up"]), "description": words(chance, 4), "parameters": parameters}
    return {"type": "function", "function": described}


def make_remarkable(rows: list[Row], chance: random.Random, form: str) -> tuple[list[str], dict[str, Any]]:
    """Change one row, perhaps. Returns the words of which one is then said or refused by, and keys that belong to it."""
    what = chance.choice(
        [*["nothing"] * 14, "same", "empty", "blank", "long", "long", "ends", "ends", "again", "no prompt"]
    )
    row, side, text = chance.choice(rows), chance.choice(["chosen", "rejected"]), form in ("text", "implicit-text")
    if what == "same":
        row["rejected"] = row["chosen"]
        return ["equal"], {}
    if what in ("empty", "blank") and form != "implicit-text":
        new = "" if what == "empty" else "  "
        row[side] = new if text else [*row[side][:-1], {"role": "assistant", "content": new}]
        return ["empty"], {}
    if what == "long" and "prompt" in row:
        much = " ".join(words(chance) for _ in range(30))
        row["prompt"] = much + row["prompt"] if text else [{**row["prompt"][0], "content": much}, *row["prompt"][1:]]
        mode = chance.choice(["keep_start", "keep_start", "keep_end"])
        return [], {"max_length": chance.choice([40, 64, 128]), "truncation_mode": mode}
    if what == "ends" and text:
        row[side] += "</s>"
    elif what == "again" and form == "text":
        row["chosen"], row["rejected"] = row["prompt"] + row["chosen"], row["prompt"] + row["rejected"]
        return ["prompt-repeated-in-answers"], {}
    elif what == "no prompt" and form == "text":
        row["prompt"] = ""
        return ["prompt"], {}
    return [], {}

"""An encoder without a tokenizer: one token a character. Tests of loading need lengths and labels, not language."""

from collections import Counter
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from dynotune.data.examples import IGNORE, Example
from dynotune.data.rows import BadRow, Row


class FakeEncoder:
    """Labels the last turn or the completion; for text every token. Refuses a row that holds `REFUSE-ME`."""

    def __init__(self, chat_template: str | None = "given", special: Sequence[str] = ("<s>",)) -> None:
        self.tokenizer: Any = SimpleNamespace(
            chat_template=chat_template,
            all_special_tokens=list(special),
            added_tokens_decoder={},
            eos_token="</s>",
            pad_token=None,
        )
        self.notices: Counter[str] = Counter()
        self.calls: list[int] = []

    def encode(self, rows: Sequence[Row]) -> list[Example | list[Example] | BadRow]:
        self.calls.append(len(rows))
        return [self._one(row) for row in rows]

    def _one(self, row: Row) -> Example | list[Example] | BadRow:
        if row.kind == "tokens":
            assert row.tokens is not None
            documents = row.tokens.get("documents", [row.tokens["input_ids"]])
            made = [Example(np.array(d, np.int32), np.array(d, np.int32), row.place) for d in documents]
            return made[0] if len(made) == 1 else made
        if row.kind == "text":
            context, answer = "^", row.text or ""
        elif row.kind == "messages":
            assert row.messages is not None
            if any(message.get("content") is None for message in row.messages):
                return BadRow(row.place, "template-refused", "null content")
            *before, last = row.messages
            context, answer = "".join(m["content"] for m in before), last["content"]
        else:
            context, answer = str(row.prompt), str(row.completion)
        if "REFUSE-ME" in context + answer:
            return BadRow(row.place, "template-refused", "it says so")
        if "WARN-ME" in context:
            self.notices["fake-warning"] += 1
        characters = np.frombuffer((context + answer).encode("utf-32-le", errors="surrogatepass"), np.uint32)
        ids = (characters % 256).astype(np.int32)
        labels = ids.copy()
        labels[: len(context)] = IGNORE
        return Example(ids, labels, row.place)

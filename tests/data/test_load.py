"""From a configuration to examples: every row is used or accounted for, and the first bad one stops by default."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset, DatasetDict

from dynotune.config.keys.data import DataConfig
from dynotune.config.sft import SFTConfig
from dynotune.data.account.ledger import Ledger
from dynotune.data.ingest import CHUNK_ROWS, Loaded, load_examples
from dynotune.data.load import load_train_and_eval
from dynotune.data.rows import BadRow, Place, Record
from dynotune.errors import ConfigError, DataError
from tests.data.fake_encoder import FakeEncoder


def text_file(path: Path, *texts: str) -> str:
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return str(path)


def records(*values: dict[str, Any]) -> Iterator[Record]:
    return (Record(Place("f", line), row) for line, row in enumerate(values, start=1))


def ingest(rows: Any, encoder: FakeEncoder | None = None, quarantine: Path | None = None, **keys: Any) -> Loaded:
    return load_examples(rows, DataConfig(**keys), encoder or FakeEncoder(), quarantine=quarantine, ledger=Ledger())


def answers(loaded: Loaded) -> list[str]:
    return ["".join(chr(i) for i in loaded.examples[n].ids_T)[1:] for n in range(len(loaded.examples))]


def test_the_first_bad_row_stops_with_place_reason_beginning_and_remedy(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "good"}\n{"text": "x\x1b[2J", }\n')
    with pytest.raises(DataError) as error:
        load_train_and_eval(SFTConfig(dataset_name=str(path)), FakeEncoder(), None)
    message = str(error.value)
    assert f"{path}:2: " in message
    assert '{"text": "x\\x1b[2J", }' in message
    assert "on_bad_row: skip" in message
    assert "\x1b" not in message


def test_the_first_fault_is_the_one_that_is_shown() -> None:
    """A row that waits for its batch and turns out bad comes before a later one that cannot be parsed."""
    rows = [Record(Place("f", 1), {"text": "REFUSE-ME"}), BadRow(Place("f", 2), "trailing-comma", "x")]
    with pytest.raises(DataError, match="f:1: template-refused"):
        ingest(rows)


def test_skipping_accounts_for_every_row_and_keeps_it(tmp_path: Path) -> None:
    rows = [
        *records({"text": "abc"}, {"text": "REFUSE-ME"}, {"question": "q"}, {"text": ""}),
        BadRow(Place("f", 5), "trailing-comma", "x", "{"),
        BadRow(Place("f"), "truncated-gzip", "x"),
    ]
    quarantine = tmp_path / "quarantine.jsonl"
    loaded = ingest(rows, on_bad_row="skip", quarantine=quarantine)
    assert answers(loaded) == ["abc"]
    ledger = loaded.ledger
    ledger.check()
    assert (ledger.rows_read, ledger.rows_used) == (5, 1)
    assert ledger.skipped == {"template-refused": 1, "unrecognised-format": 1, "no-labels": 1, "trailing-comma": 1}
    assert ledger.faults == {"truncated-gzip": 1}
    kept = [json.loads(line) for line in quarantine.read_text().splitlines()]
    # A row is refused as soon as that is known: what the encoder refuses follows its batch.
    assert sorted((entry["line"] or 0, entry["reason"]) for entry in kept) == [
        (0, "truncated-gzip"),
        (2, "template-refused"),
        (3, "unrecognised-format"),
        (4, "no-labels"),
        (5, "trailing-comma"),
    ]
    assert {entry["line"]: entry.get("row") for entry in kept}[3] == {"question": "q"}
    assert all(entry["beginning"] for entry in kept if entry["line"])


def test_no_row_left_is_an_error_that_shows_the_ledger() -> None:
    with pytest.raises(DataError, match=r"(?s)no row is left.*skipped: template-refused\s+2"):
        ingest(records({"text": "REFUSE-ME"}, {"text": "REFUSE-ME"}), on_bad_row="skip")
    with pytest.raises(DataError, match="no row is left"):
        ingest([])


def test_the_format_is_stated_and_a_mix_is_noticed_row_by_row() -> None:
    chat = {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "bc"}]}
    assert ingest(records(*[chat] * 1200)).format == "messages (1,200 rows)"
    alpaca = {"instruction": "i", "output": "out"}
    mixed = ingest(records(chat, alpaca, {"text": "x"}, alpaca))
    assert mixed.format == (
        "mixed formats: messages (1 row); Alpaca, as messages for the chat template (2 rows); text in the column `text` "
        "(1 row)"
    )
    assert mixed.ledger.notices["alpaca-row"] == 2
    assert mixed.ledger.places["text-row"] == ["f:3"]
    without = ingest(records(alpaca), FakeEncoder(chat_template=None))
    assert "Alpaca's own prompt text" in without.format


def test_notices_of_rows_texts_duplicates_and_encoder_reach_the_ledger() -> None:
    rows = [
        Record(Place("f", 1), {"prompt": "WARN-ME", "completion": "ab"}, ["bom-at-start"]),
        *list(records({}, {"prompt": "x <s>", "completion": "ab"}, {"prompt": "x <s>", "completion": "ab"}))[1:],
    ]
    encoder = FakeEncoder()
    encoder.notices["from-another-data-set"] = 3
    loaded = ingest(rows, encoder)
    assert loaded.ledger.notices == {
        "bom-at-start": 1,
        "control-token-injection": 2,
        "exact-duplicate": 1,
        "fake-warning": 1,
    }
    assert loaded.ledger.places["exact-duplicate"] == ["f:3"]


def test_rows_are_encoded_in_chunks_bounded_by_rows_and_characters() -> None:
    encoder = FakeEncoder()
    ingest(records(*[{"text": "ab"}] * (CHUNK_ROWS + 5)), encoder)
    assert encoder.calls == [CHUNK_ROWS, 5]
    encoder = FakeEncoder()
    ingest(records(*[{"text": "a" * 1_500_000}] * 3), encoder)
    assert encoder.calls == [2, 1]


def test_null_content_beside_tool_calls_is_retried_as_empty() -> None:
    call = {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": {}}}]}
    end = {"role": "assistant", "content": "done"}
    loaded = ingest(records({"messages": [{"role": "user", "content": "q"}, call, end]}))
    assert loaded.ledger.rows_used == 1
    assert loaded.ledger.notices["null-content-as-empty"] == 1


def test_packed_token_rows_become_several_examples() -> None:
    loaded = ingest(records({"input_ids": [], "documents": [[1, 2, 3], [4, 5]]}, {"input_ids": [6, 7]}))
    assert [len(loaded.examples[i].ids_T) for i in range(3)] == [3, 2, 2]
    assert (loaded.ledger.rows_read, loaded.ledger.rows_used) == (2, 3)


def test_columns_hold_for_training_and_evaluation(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps({"question": f"{name}?", "answer": "yes"}) + "\n")
    config = SFTConfig(
        dataset_name=str(tmp_path / "a.jsonl"),
        eval_dataset_name={"b": str(tmp_path / "b.jsonl")},
        eval_strategy="steps",
        columns={"prompt": "question", "completion": "answer"},
    )
    train, evaluation = load_train_and_eval(config, FakeEncoder(), None)
    assert train.format == evaluation["b"].format == "prompt-completion (1 row)"
    with pytest.raises(DataError, match="the columns that exist are: question, answer"):
        load_train_and_eval(config.model_copy(update={"columns": {"prompt": "query"}}), FakeEncoder(), None)


def test_contradictions_name_both_keys(tmp_path: Path) -> None:
    file = text_file(tmp_path / "a.jsonl", "a")
    with pytest.raises(ConfigError, match="No training data"):
        load_train_and_eval(SFTConfig(), FakeEncoder(), None)
    with pytest.raises(ConfigError, match="`train_dataset` and `dataset_name`"):
        load_train_and_eval(SFTConfig(dataset_name=file), FakeEncoder(), None, train_dataset=[])
    config = SFTConfig(dataset_name=file, test_split_size=0.5, eval_strategy="steps")
    with pytest.raises(ConfigError, match="`eval_dataset` and `test_split_size`"):
        load_train_and_eval(config, FakeEncoder(), None, eval_dataset=[{"text": "a"}])


def test_evaluation_data_comes_from_where_it_was_named(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    text_file(folder / "train.jsonl", "train")
    text_file(folder / "test.jsonl", "test")
    other = text_file(tmp_path / "other.jsonl", "other")

    def evaluated(eval_dataset: Any = None, **keys: Any) -> dict[str, list[str]]:
        config = SFTConfig(**{"dataset_name": str(folder), "eval_strategy": "steps", **keys})
        train, evaluation = load_train_and_eval(config, FakeEncoder(), None, eval_dataset=eval_dataset)
        assert answers(train) == ["train"]
        return {name: answers(loaded) for name, loaded in evaluation.items()}

    assert evaluated(eval_strategy="no") == {}
    assert evaluated() == {"eval": ["test"]}
    assert evaluated(eval_dataset_name=other) == {"eval": ["other"]}
    assert evaluated(eval_dataset_name=str(folder)) == {"eval": ["test"]}
    assert evaluated(eval_dataset_name={"x": other, "y": str(folder)}) == {"x": ["other"], "y": ["test"]}
    assert evaluated(eval_dataset=[{"text": "mine"}]) == {"eval": ["mine"]}
    both = DatasetDict({"p": Dataset.from_list([{"text": "pp"}]), "q": Dataset.from_list([{"text": "qq"}])})
    assert evaluated(eval_dataset=both) == {"p": ["pp"], "q": ["qq"]}
    with pytest.raises(DataError, match=r"brings no split 'dev'.*test_split_size"):
        evaluated(dataset_test_split="dev")
    with pytest.raises(DataError, match=r"no split 'dev' \(asked for by dataset_test_split\). It has: test, train"):
        evaluated(eval_dataset_name=str(folder), dataset_test_split="dev")


def test_a_wrong_evaluation_name_costs_no_reading(tmp_path: Path) -> None:
    class Counting(FakeEncoder):
        def encode(self, rows: Any) -> Any:
            raise AssertionError("read before the names were resolved")

    config = SFTConfig(
        dataset_name=text_file(tmp_path / "a.jsonl", "a"),
        eval_dataset_name=str(tmp_path / "b.jsonl"),
        eval_strategy="steps",
    )
    with pytest.raises(DataError, match=r"b\.jsonl: no such file"):
        load_train_and_eval(config, Counting(), None)


@pytest.mark.parametrize("size", [0.25, 0.1, 3, 1])
def test_held_out_rows_are_those_that_datasets_would_choose(tmp_path: Path, size: float) -> None:
    texts = [f"row {i}" for i in range(11)]
    config = SFTConfig(dataset_name=text_file(tmp_path / "a.jsonl", *texts), test_split_size=size, seed=7)
    train, evaluation = load_train_and_eval(config, FakeEncoder(), None)
    data = Dataset.from_list([{"text": text} for text in texts])
    theirs = data.train_test_split(size if size < 1 else int(size), seed=7)
    assert answers(train) == theirs["train"]["text"]
    assert answers(evaluation["eval"]) == theirs["test"]["text"]
    for loaded in (train, evaluation["eval"]):
        loaded.ledger.check()
        assert loaded.ledger.rows_used == len(loaded.examples)
        assert loaded.ledger.tokens_used == loaded.examples.lengths.sum()
    assert train.ledger.skipped == {"held-out": len(theirs["test"])}
    assert f"seed {config.seed}" in evaluation["eval"].sources[0]


@pytest.mark.parametrize("size", [2, 5, 0.9])
def test_holding_out_everything_is_refused(tmp_path: Path, size: float) -> None:
    config = SFTConfig(dataset_name=text_file(tmp_path / "a.jsonl", "a1", "b1"), test_split_size=size)
    with pytest.raises(DataError, match="cannot be held out"):
        load_train_and_eval(config, FakeEncoder(), None)


def test_a_mixture_is_loaded_with_its_own_columns_and_account(tmp_path: Path) -> None:
    a = text_file(tmp_path / "a.jsonl", *[f"a{i}" for i in range(4)])
    (tmp_path / "b.jsonl").write_text('{"q": "x", "r": "yy"}\n')
    config = SFTConfig.model_validate(
        {
            "datasets": [
                {"path": a, "fraction": 0.5},
                {"path": str(tmp_path / "b.jsonl"), "fraction": 0.5, "columns": {"prompt": "q", "completion": "r"}},
            ]
        }
    )
    loaded, _ = load_train_and_eval(config, FakeEncoder(), None)
    assert loaded.ledger.skipped == {"outside-fraction": 3}
    assert (loaded.ledger.rows_read, loaded.ledger.rows_used) == (5, 2)
    assert "its first 1 rows (fraction 0.5)" in loaded.sources[0]


def test_an_earlier_runs_quarantine_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "quarantine.jsonl").write_text("old\n")
    config = SFTConfig(dataset_name=text_file(tmp_path / "a.jsonl", "good", "REFUSE-ME"), on_bad_row="skip")
    load_train_and_eval(config, FakeEncoder(), tmp_path)
    (line,) = (tmp_path / "quarantine.jsonl").read_text().splitlines()
    assert json.loads(line)["reason"] == "template-refused"

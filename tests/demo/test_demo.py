"""The demo really learns a task and then a preference: held-out words, exact answers, ordinary files, no download."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from dynotune import ConfigError, DPOConfig, TrainingError, load_config
from dynotune.demo import preference
from dynotune.demo import run as module
from dynotune.demo.files import END, write_files, write_pairs
from dynotune.demo.run import run_demo
from dynotune.demo.score import Score, score
from dynotune.demo.task import Item, make_items


@given(st.integers(1, 300), st.integers(1, 60), st.integers(0, 1000))
def test_no_held_out_word_is_seen_in_training_and_no_item_comes_twice(train: int, held_out: int, seed: int) -> None:
    seen, unseen = make_items(train, held_out, seed)
    assert (len(seen), len(unseen)) == (train, held_out)
    assert not {item.word for item in seen} & {item.word for item in unseen}
    assert len({*seen, *unseen}) == train + held_out
    assert make_items(train, held_out, seed) == (seen, unseen)


def test_the_answers_are_right() -> None:
    assert Item("sort", "hecfc").answer == "ccefh"
    assert Item("reverse", "hecfc").answer == "cfceh"
    assert (Item("sort", "hecfc").preferred, Item("reverse", "hecfc").preferred) == ("hfecc", "cfceh")


@given(st.sampled_from(("sort", "reverse")), st.text("abcdefghij", min_size=3, max_size=5))
def test_every_pair_has_two_answers_and_rejects_rising_letters(verb: str, word: str) -> None:
    item = Item(verb, word)
    pair = item.pair()
    assert pair["prompt"] == item.row()["messages"][:1]
    assert pair["rejected"][0]["content"] == "".join(sorted(word))
    assert (pair["chosen"] != pair["rejected"]) == item.tells_apart
    if verb == "reverse":
        assert pair["chosen"] == item.row()["messages"][1:]


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    write_files(tmp_path / "demo", *make_items(40, 10, 0))
    return tmp_path / "demo"


def test_the_configuration_is_an_ordinary_one(demo: Path) -> None:
    config = load_config(demo / "sft.yaml", {})
    assert config.random_weights
    assert config.assistant_only_loss
    assert Path(str(config.dataset_name)).read_text().count("\n") == 40
    assert not config.notices
    config = load_config(write_pairs(demo, *make_items(40, 10, 0)), into=DPOConfig)
    assert Path(str(config.model_name_or_path)) == demo / "run" / "model"
    rows = [json.loads(row) for row in Path(str(config.dataset_name)).read_text().splitlines()]
    assert rows == [item.pair() for item in make_items(40, 10, 0)[0] if item.tells_apart]
    assert not config.notices


def test_the_tokenizer_round_trips_and_the_template_marks_the_answer_and_its_end(demo: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(demo / "model")
    item = Item("reverse", "abcde")
    out = tokenizer.apply_chat_template(
        item.row()["messages"], tokenize=True, return_dict=True, return_assistant_tokens_mask=True
    )
    assert tokenizer.decode(out["input_ids"]) == f"<user>reverse abcde<assistant>edcba{END}"
    labelled = [i for i, marked in zip(out["input_ids"], out["assistant_masks"], strict=True) if marked]
    assert tokenizer.decode(labelled) == f"edcba{END}"
    assert tokenizer.eos_token_id == labelled[-1]


def test_scoring_counts_only_whole_answers_that_end(demo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: a model that knows every answer scores 1, one that forgets to stop scores 0."""
    import torch

    tokenizer: Any = AutoTokenizer.from_pretrained(demo / "model")
    items = make_items(40, 10, 0)[1]
    model: Any = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(demo / "model"))
    assert score(model, tokenizer, items).accuracy == 0
    ending = END

    def knows(input_ids: torch.Tensor, **_: Any) -> torch.Tensor:
        answers = [item.answer + ending + "<pad>" * (5 - len(item.answer)) for item in items]
        return torch.cat([input_ids, tokenizer(answers, return_tensors="pt")["input_ids"]], 1)

    monkeypatch.setattr(model, "generate", knows)
    assert score(model, tokenizer, items).accuracy == 1
    ending = "a"
    assert score(model, tokenizer, items).accuracy == 0
    assert tokenizer.padding_side == "right"
    one_wrong = Score(items, [item.answer for item in items[:-1]] + ["x"])
    assert one_wrong.right == 9


def test_a_model_that_did_not_move_is_said_to(demo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: as many preferred answers after as before is an error; one more is not."""
    from types import SimpleNamespace

    from dynotune.demo import score as scores
    from dynotune.train import dpo

    train, held_out = make_items(40, 10, 0)
    rising = Score(held_out, [item.answer for item in held_out])
    moved = Score(held_out, [held_out[0].preferred, *rising.answers[1:]])
    assert (rising.of("sort").preferred, moved.of("sort").preferred, rising.of("sort").right) == (0, 1, 5)
    result = SimpleNamespace(model=None, tokenizer=None, metrics=[{"eval_loss": 0.1, "eval_rewards/accuracies": 1.0}])
    monkeypatch.setattr(dpo, "train_dpo", lambda *_, **__: result)
    monkeypatch.setattr(scores, "score", lambda *_: rising)
    with pytest.raises(TrainingError, match="did not move"):
        preference.prefer(demo, train, held_out, rising, Console(quiet=True))
    monkeypatch.setattr(scores, "score", lambda *_: moved)
    assert preference.prefer(demo, train, held_out, rising, Console(quiet=True)) is moved


def test_a_folder_with_other_things_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(ConfigError, match="not a demo"):
        run_demo(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


@pytest.mark.long
def test_the_demo_learns_and_its_runs_can_be_repeated_from_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from dynotune.cli import run

    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # sft.yaml sets it: undone at the end of the test
    folder = tmp_path / "demo"
    shown: list[Score] = []
    real = module._show
    monkeypatch.setattr(module, "_show", lambda *args: (shown.extend(args[2:4]), real(*args))[1])
    preferring = module.prefer
    monkeypatch.setattr(module, "prefer", lambda *args: shown.append(preferring(*args)))
    assert run_demo(folder) == 0
    before, after, moved = shown
    assert before.accuracy < 0.05
    assert after.accuracy > 0.9
    assert (folder / "run" / "loss.svg").read_text().startswith("<svg")
    printed = capsys.readouterr().out
    assert f"{after.right} ({after.accuracy:.1%}) after" in printed
    assert "train loss" in printed
    sorts = len(moved.of("sort").items)
    assert (after.of("sort").preferred, sorts) == (0, len(after.of("sort").items))
    assert moved.of("sort").preferred > 0.5 * sorts
    assert moved.of("reverse").right > 0.8 * len(moved.of("reverse").items)
    assert f"of {sorts} held-out words: 0 before, {moved.of('sort').preferred} after" in printed

    for name, expected in (("run", after), ("run-dpo", moved)):
        saved: Any = AutoModelForCausalLM.from_pretrained(folder / name / "model")
        tokenizer: Any = AutoTokenizer.from_pretrained(folder / name / "model")
        assert score(saved, tokenizer, expected.items).answers == expected.answers

    def losses(path: Path) -> list[float]:
        rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
        return [row["loss"] for row in rows if "loss" in row]

    for command, name in (("sft", "run"), ("dpo", "run-dpo")):
        again = tmp_path / command
        assert run([command, "--config", str(folder / f"{command}.yaml"), "--output_dir", str(again)]) == 0
        assert losses(again) == losses(folder / name)

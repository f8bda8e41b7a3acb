"""Promise: a change of YAML or JSON changes that entry and no other character, or nothing."""

import json

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from dynotune.audit.change import Change, Edit
from dynotune.audit.fix.keyed import changed_json, changed_yaml
from dynotune.audit.fix.splice import NotAppliedError
from dynotune.audit.place import Place

TEXT = """\
# what this is for
model_name_or_path: Qwen/Qwen2.5-0.5B   # small

optim:    'adamw_torch' # as in the paper
learning_rate: 1e-5
datasets:
  - path: a.jsonl   # first
    split: train
  - path: b.jsonl
lora: {r: 8,  alpha: 16}
empty:
text: |
  packing: false
tail: [1, 2]
"""


def change(edit: Edit, key: str, name: str, value: object = None, to: str = "") -> Change:
    return Change(edit, Place("a.yaml", 1, key=key), name, value, to)


@pytest.mark.parametrize(
    ("edit", "key", "name", "value", "old", "new"),
    [
        (Edit.SET, "optim", "optim", "adamw_torch_fused", "'adamw_torch' #", "'adamw_torch_fused' #"),
        (Edit.SET, "learning_rate", "learning_rate", 2e-5, "1e-5", "2.0e-05"),
        (Edit.SET, "datasets.1.path", "path", "c d: e", "b.jsonl", '"c d: e"'),
        (Edit.SET, "lora.r", "r", 32, "{r: 8,", "{r: 32,"),
        (Edit.SET, "lora", "dropout", 0.0, "alpha: 16}", "alpha: 16, dropout: 0.0}"),
        (Edit.SET, "empty", "empty", True, "empty:", "empty: true"),
        (Edit.SET, "tail", "tail", ["a", "b"], "[1, 2]", "[a, b]"),
        (Edit.SET, "", "bf16", True, "tail: [1, 2]\n", "tail: [1, 2]\nbf16: true\n"),
        (Edit.SET, "datasets.0", "type", "chat", "split: train\n", "split: train\n    type: chat\n"),
        (Edit.REMOVE, "optim", "optim", None, "optim:    'adamw_torch' # as in the paper\n", ""),
        (Edit.REMOVE, "datasets.0.split", "split", None, "    split: train\n", ""),
        (Edit.REMOVE, "lora.r", "r", None, "r: 8,  alpha", "alpha"),
        (Edit.REMOVE, "lora.alpha", "alpha", None, "8,  alpha: 16}", "8}"),
        (Edit.REMOVE, "text", "text", None, "text: |\n  packing: false\n", ""),
    ],
)
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_only_this_entry_changes(
    edit: Edit, key: str, name: str, value: object, old: str, new: str, line_end: str
) -> None:
    text, old, new = (part.replace("\n", line_end) for part in (TEXT, old, new))
    assert old in text
    assert changed_yaml(text, change(edit, key, name, value)) == text.replace(old, new, 1)


def test_a_key_is_renamed_where_it_stands() -> None:
    after = changed_yaml(TEXT, change(Edit.RENAME, "optim", "optim", to="optimizer"))
    assert after == TEXT.replace("optim:", "optimizer:")


@pytest.mark.parametrize(
    ("text", "key", "name"),
    [
        ("a: &x 1\nb: *x\n", "a", "a"),  # another key has its value from here
        ("base: &b {a: 1}\nc:\n  <<: *b\n", "c.a", "a"),
        ("a: 1\na: 2\n", "a", "a"),
        ("a:\n  - 1\n", "a", "a"),  # goes over several lines
        ("a: |\n  x\n", "a", "a"),
        ("a: ${oc.env:A,1}\n", "a", "a"),
        ("a: '{{ a }}'\n", "a", "a"),
        ("a: 1\n", "b.c", "c"),
        ("- 1\n", "", "a"),
        ("a: [1\n", "a", "a"),
    ],
)
def test_where_it_cannot_be_done_nothing_is(text: str, key: str, name: str) -> None:
    with pytest.raises(NotAppliedError):
        changed_yaml(text, change(Edit.SET, key, name, 5))


def test_a_mapping_of_several_lines_is_changed_key_by_key() -> None:
    text = "kwargs:\n  use_reentrant: true  # old\n  gone: 1\nlast: 1\n"
    after = changed_yaml(text, change(Edit.SET, "kwargs", "kwargs", {"use_reentrant": False, "new": "x"}))
    assert after == "kwargs:\n  use_reentrant: false  # old\n  new: x\nlast: 1\n"


def test_empty_files_and_files_without_a_last_line_end() -> None:
    assert changed_yaml("", change(Edit.SET, "", "a", 1)) == "a: 1\n"
    assert changed_yaml("# only words\n", change(Edit.SET, "", "a", 1)) == "# only words\na: 1\n"
    assert changed_yaml("b: 2", change(Edit.SET, "", "a", 1)) == "b: 2\na: 1"


@pytest.mark.parametrize("indent", ["  ", "    ", "\t", ""])
def test_json_keeps_its_layout(indent: str) -> None:
    held = {"optim": "adamw_torch", "nested": {"a": [1, 2], "b": None}, "empty": {}}
    text = json.dumps(held, indent=indent or None)
    assert changed_json(text, change(Edit.SET, "optim", "optim", "x")) == text.replace("adamw_torch", "x")
    assert changed_json(text, change(Edit.SET, "nested.b", "b", True)) == text.replace("null", "true")
    added = changed_json(text, change(Edit.SET, "nested", "c", "y"))
    assert json.loads(added)["nested"] == {"a": [1, 2], "b": None, "c": "y"}
    assert len(added.splitlines()) == len(text.splitlines()) + (1 if indent else 0)
    removed = changed_json(text, change(Edit.REMOVE, "empty", "empty"))
    assert "empty" not in json.loads(removed)
    with pytest.raises(NotAppliedError):
        changed_json('{"a": 1,}', change(Edit.SET, "a", "a", 2))


KEYS = st.from_regex(r"[a-z][a-z_]{0,8}", fullmatch=True).filter(lambda key: yaml.safe_load(key) == key)
VALUES = st.one_of(
    st.booleans(), st.none(), st.integers(-(10**9), 10**9), st.floats(allow_nan=False, allow_infinity=False), st.text()
)
COMMENTS = st.text(st.characters(codec="ascii", exclude_categories=["C"]), max_size=20)


@settings(max_examples=40)
@given(
    held=st.dictionaries(KEYS, st.tuples(VALUES, COMMENTS), min_size=1, max_size=6),
    name=KEYS,
    value=VALUES,
    data=st.data(),
)
def test_any_value_is_set_comments_stay_and_all_else_is_the_same_byte_for_byte(
    held: dict[str, tuple[object, str]], name: str, value: object, data: st.DataObject
) -> None:
    lines = [f"{key}: {json.dumps(one)}  # {comment}".rstrip() for key, (one, comment) in held.items()]
    text = "\n".join(lines) + "\n"
    target = data.draw(st.sampled_from([name, *held]))
    key = target if target in held else ""
    after = changed_yaml(text, change(Edit.SET, key, target, value))
    found = yaml.safe_load(after)[target]
    assert found == value
    assert type(found) is type(value)
    rest = [line for line in after.splitlines() if not line.startswith(f"{target}:")]
    assert rest == [line for line in lines if not line.startswith(f"{target}:")]
    if target in held and held[target][1].strip():
        assert after.count(f"# {held[target][1]}".rstrip()) >= 1
    gone = changed_yaml(after, change(Edit.REMOVE, target, target)) if len(held) > 1 or target not in held else ""
    assert not any(line.startswith(f"{target}:") for line in gone.splitlines())


@given(st.text(), KEYS, VALUES)
def test_no_text_makes_it_fail(text: str, name: str, value: object) -> None:
    for edit in Edit:
        for editor in (changed_yaml, changed_json):
            try:
                editor(text, change(edit, name, name, value, "other"))
            except NotAppliedError:
                continue

"""Promise: a configuration is read with the place of every key, and no text, whatever it is, does more than be refused."""

import contextlib
import json
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from dynotune.audit.facts.config import ConfigFile
from dynotune.audit.facts.setting import Unknown
from dynotune.audit.read.configs import NotReadableError, read_config

ROOT = Path("project")


def read(text: str, name: str = "sft.yaml") -> ConfigFile:
    config = read_config(ROOT / name, text, ROOT)
    assert config is not None
    return config


def test_every_key_of_yaml_has_its_place() -> None:
    config = read("# dynotune\na: 1\nb:\n  - path: x  # why\n    n: [1, 2]\n")
    assert config.values == {"a": 1, "b": [{"path": "x", "n": [1, 2]}]}
    assert config.places["b.0.path"].line == 4
    assert config.places["b.0.path"].column == 5
    assert config.places["a"].file == "sft.yaml"
    assert config.comments == {1: "dynotune", 4: "why"}


@pytest.mark.parametrize("text", ["a: 'x # y'\n", "a: x#y\n", "a: |\n  # no comment\n  b\n", 'a: "1\n  # 2"\n'])
def test_what_only_looks_like_a_comment_is_none(text: str) -> None:
    assert not read(text).comments


def test_of_two_equal_keys_the_last_counts_and_both_are_kept() -> None:
    config = read("lr: 1\nx: 2\nlr: 3\n")
    assert config.values["lr"] == 3
    assert [place.line for place in config.repeated["lr"]] == [1, 3]
    config = read('{"lr": 1,\n "lr": 3}', "a.json")
    assert config.values["lr"] == 3
    assert [place.line for place in config.repeated["lr"]] == [1, 2]
    assert not read("a: {lr: 1}\nb: {lr: 1}\n").repeated


def test_own_keys_win_over_merged_ones() -> None:
    config = read("base: &b\n  lr: 1\n  bs: 2\nrun:\n  <<: *b\n  lr: 3\n")
    assert config.values["run"] == {"lr": 3, "bs": 2}
    assert config.places["run.lr"].line == 6
    assert config.places["run.bs"].line == 3
    assert not config.repeated


def test_tags_are_not_carried_out() -> None:
    config = read("a: !!python/object/apply:os.system ['touch here']\nb: !env HOME\nc: 2\n")
    assert isinstance(config.values["b"], Unknown)
    assert config.values["c"] == 2
    assert "touch here" in config.values["a"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a: [1\n", "no valid YAML"),
        ("a: &x [*x]\n", "contains itself"),
        ("a: " + "[" * 50 + "]" * 50, "deeper"),
        ("a: \x07\n", "not readable"),
        ("? [a, b]\n: 1\n", "a key is a list"),
        (
            "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
            + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 9)),
            "comes to more",
        ),
    ],
)
def test_broken_and_hostile_yaml_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(NotReadableError, match=why):
        read(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [('{"a": ', "no valid JSON"), ("[" * 10_000, "deeper|valid"), ('{"a":' * 60 + "1" + "}" * 60, "levels")],
)
def test_broken_and_hostile_json_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(NotReadableError, match=why):
        read(text, "a.json")


def test_toml_has_lines() -> None:
    config = read('# top\n[training]\nlr = 1e-5  # rate\nname = "a # b"\n', "a.toml")
    assert config.values == {"training": {"lr": 1e-5, "name": "a # b"}}
    assert config.places["training.lr"].line == 3
    with pytest.raises(NotReadableError, match="TOML"):
        read("a = \n", "a.toml")


def test_comments_of_toml_stand_outside_of_strings() -> None:
    config = read('a = """\n# none\n"" # none\n"""  # one\nb = "\\" # none"\nc = \'# none\'# two\n', "a.toml")
    assert config.comments == {4: "one", 6: "two"}


@pytest.mark.parametrize("name", ["a.yaml", "a.toml", "a.json"])
def test_only_line_ends_end_lines(name: str) -> None:
    text = {
        "a.yaml": 'x: "\u2028\x85\u2029"  # \u2028\nlr: 1\n',
        "a.toml": 'x = "\u2028\x85\u2029"  # \u2028\nlr = 1\n',
        "a.json": '{"x": "\u2028\x85\u2029",\n"lr": 1}',
    }[name]
    config = read(text, name)
    assert config.places["lr"].line == 2
    assert config.values == {"x": "\u2028\x85\u2029", "lr": 1}


def test_lists_and_texts_are_no_configurations() -> None:
    assert read_config(ROOT / "a.json", "[1, 2]", ROOT) is None
    assert read_config(ROOT / "a.yaml", "just text", ROOT) is None


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=200), st.sampled_from(["a.yaml", "a.json", "a.toml"]))
def test_any_text_is_read_or_refused(text: str, name: str) -> None:
    with contextlib.suppress(NotReadableError):
        read_config(ROOT / name, text, ROOT)


# Without digits: PyYAML writes the text `0E0` bare, and it is read as the number that YAML 1.2 says it is.
TEXT = st.text(st.characters(codec="ascii", exclude_categories=["Nd"]), max_size=6)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-999, 999) | TEXT,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("abc_", min_size=1, max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.text("abcdef_", min_size=1, max_size=5), PLAIN, max_size=5), st.booleans())
def test_what_was_written_is_read_again_with_a_place_for_every_key(values: dict[str, object], as_json: bool) -> None:
    text = json.dumps(values, indent=1) if as_json else yaml.safe_dump(values)
    config = read_config(ROOT / ("a.json" if as_json else "a.yaml"), text, ROOT)
    assert config is not None
    assert config.values == values
    assert set(values) <= set(config.places)
    for key in values:
        line = text.splitlines()[config.places[key].line - 1]
        assert key in line

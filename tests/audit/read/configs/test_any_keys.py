"""Promise: reading never invents: any mix of keys comes out as the job that was written, and nothing of it is lost."""

from pathlib import Path

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from dynotune.audit.facts.job import Fate
from dynotune.audit.read.configs import job_of, read_config
from dynotune.audit.read.configs.words import AXOLOTL, LLAMA_FACTORY, in_our_words
from dynotune.audit.schema import Schemas

SCHEMAS = Schemas.of()
KEYS = st.dictionaries(
    st.sampled_from(
        ["packing", "learning_rate", "max_length", "lora_r", "bf16", "optim", "max_seq_length", "sample_packing", "zzz"]
    ),
    st.none()
    | st.booleans()
    | st.integers(0, 9)
    | st.floats(0, 1)
    | st.sampled_from(["a", "auto", "no"])
    | st.just([1]),
)


@settings(max_examples=60, deadline=None)
@given(KEYS)
def test_every_key_of_a_file_is_in_its_job_with_its_place(keys: dict[str, object]) -> None:
    text = "model_name_or_path: a/b\ndataset_name: d\n" + (yaml.safe_dump(keys) if keys else "")
    config = read_config(Path("sft.yaml"), text, Path())
    assert config is not None
    job = job_of(config, SCHEMAS)
    assert job is not None
    assert {key.name for key in job.given} == {"model_name_or_path", "dataset_name", *keys}
    for key in job.given:
        assert text.splitlines()[key.place.line - 1].startswith(f"{key.name}:")
        assert (key.fate is Fate.KNOWN) is (key.name not in ("zzz", "sample_packing", "max_seq_length"))
    for name, value in keys.items():
        if name not in ("zzz", "sample_packing", "max_seq_length", "max_length"):
            assert job.settings[name].value == value or name == "bf16"
            assert job.is_given(name) or name == "bf16"


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


@settings(max_examples=80, deadline=None)
@given(st.sampled_from(sorted({*AXOLOTL, *LLAMA_FACTORY})), ANY)
def test_any_value_of_any_key_is_put_into_our_words(name: str, value: object) -> None:
    for table in (AXOLOTL, LLAMA_FACTORY):
        for ours, _ in in_our_words(name, value, table):
            assert ours

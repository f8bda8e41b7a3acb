"""Promise: what differs between two arms says which gates they need, by its key, whatever else differs beside it."""

from typing import Any

import pytest

from dynotune.bench.asking.arms import SHOWN_ONLY
from dynotune.bench.parity.needs import OUTSIDE, PRECISION, kind_of, needs_of
from dynotune.config.sft import SFTConfig
from dynotune.speedups.contract import Kind
from dynotune.train.checkpoints.decisions import DECISIONS
from dynotune.train.quiet import QUIET
from tests.bench.parity.planted import HARMLESS, NAME, planted


def config(**settings: Any) -> SFTConfig:
    return SFTConfig(**{"model_name_or_path": "m", "dataset_name": "d.jsonl", "use_cpu": True, **settings})


CASES: list[tuple[dict[str, Any], str, tuple[str, ...]]] = [
    ({}, "unchanged", ()),
    ({"logging_steps": 3, "run_name": "b", "token_cache": "off", "max_steps": 9}, "unchanged", ()),
    ({"packed_execution": "off"}, "exact", ("P1", "P2")),
    ({"speedups": {"labelled_rows_head": "off"}}, "exact", ("P1", "P2")),
    ({"gradient_checkpointing": True}, "exact", ("P1", "P2")),
    ({"attn_implementation": "eager"}, "exact", ("P1", "P2")),
    ({"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2}, "exact", ("P1", "P2")),
    ({"env": {"NCCL_DEBUG": "WARN"}}, "exact", ("P1", "P2")),
    ({"optim": "adamw_torch"}, "exact", ("P1", "P2", "P3")),
    ({"speedups": {"fused_optimizer": "off"}}, "exact", ("P1", "P2", "P3")),
    ({"bf16": True}, "numeric", ("P2", "P3")),
    ({"bf16": True, "packed_execution": "off"}, "numeric", ("P2", "P3")),
    ({"learning_rate": 2.04e-5}, "behavioural", ("P4",)),
    ({"learning_rate": 2.04e-5, "bf16": True}, "behavioural", ("P4",)),
    ({"global_batch_size": 4}, "behavioural", ("P4",)),
    ({"gpus": 2}, "behavioural", ("P4",)),
    ({"packing": True}, "behavioural", ("P4",)),
    ({"max_length": 512}, "behavioural", ("P4",)),
    ({"optim": "adafactor"}, "behavioural", ("P4",)),
    ({"dtype": "bfloat16"}, "behavioural", ("P4",)),
    ({"use_peft": True, "lora_r": 8}, "behavioural", ("P4",)),
]


@pytest.mark.parametrize(("settings", "kind", "gates"), CASES, ids=[str(case[0]) for case in CASES])
def test_gates_follow_from_what_differs(settings: dict[str, Any], kind: str, gates: tuple[str, ...]) -> None:
    needs = needs_of(config(), config(**settings))
    assert (needs.kind, needs.gates) == (kind, gates)


def test_a_frozen_base_in_lower_precision_is_numeric() -> None:
    lora = {"use_peft": True}
    assert needs_of(config(**lora), config(**lora, dtype="bfloat16")).kind == "numeric"


def test_asked_for_in_full() -> None:
    assert needs_of(config(), config(packed_execution="off"), full=True).gates == ("P1", "P2", "P3")
    assert needs_of(config(), config(learning_rate=1e-3), full=True).gates == ("P4",)


def test_the_kind_of_a_speed_up_is_its_own() -> None:
    with planted(HARMLESS["positions not reset"]):
        needs = needs_of(config(), config(speedups={NAME: "on"}))
    assert (needs.kind, needs.speedups) == ("exact", (NAME,))


ROWS = {"test_split_size": 0.1}
NUMERIC = {"speedups": {NAME: "on"}}


@pytest.mark.parametrize(
    ("both", "settings", "full", "gates"),
    [
        ({}, NUMERIC, False, ("P3",)),
        (ROWS, NUMERIC, False, ("P3", "P4")),
        (ROWS, {**NUMERIC, "bf16": True}, False, ("P3", "P4")),
        (ROWS, {"bf16": True}, False, ("P2", "P3")),
        ({}, NUMERIC, True, ("P3", "P4")),
        ({}, {"bf16": True}, True, ("P2", "P3", "P4")),
    ],
    ids=["no rows", "rows", "beside a key", "a key alone", "in full", "a key in full"],
)
def test_what_rounds_by_itself_takes_the_held_out_loss_in_place_of_p2(
    both: dict[str, Any], settings: dict[str, Any], full: bool, gates: tuple[str, ...]
) -> None:
    """Section B4 of the protocol. Control: a precision that a key chooses is chosen for the plain path, too, whose error its
    own is measured by."""
    with planted(HARMLESS["positions not reset"], calls_itself=Kind.NUMERIC):
        needs = needs_of(config(**both), config(**both, **settings), full=full)
    assert (needs.kind, needs.gates) == ("numeric", gates)


def test_every_key_has_a_kind() -> None:
    """A key that the table of decisions does not know is behavioural: nobody has said that it is not."""
    one = config()
    for key in SFTConfig.model_fields:
        known = DECISIONS.get(key)
        if key in QUIET or (known and known.reason == SHOWN_ONLY):
            continue
        assert kind_of(key, None, 1, one, one) in ("exact", "numeric", "behavioural", "unchanged")
    assert kind_of("a_new_key", None, 1, one, one) == "behavioural"
    assert set(SFTConfig.model_fields) >= OUTSIDE | PRECISION

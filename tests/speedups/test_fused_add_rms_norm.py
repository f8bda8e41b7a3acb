"""Promise: the sum in the norm behind it needs that norm's kernel, gives way to layers computed again, and says why not."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from dynotune import SFTConfig
from dynotune.model import elementwise
from dynotune.model.elementwise import usable
from dynotune.model.precision import Precision
from dynotune.speedups.choose import conflict, decide
from dynotune.speedups.contract import Context, Installation, No
from dynotune.speedups.installed import Installed
from dynotune.speedups.registry import speedups
from dynotune.speedups.site import Site
from tests.model.elementwise.stand_ins import added_and_normed, stand_ins
from tests.tiny import tiny_model

NAME = "fused_add_rms_norm"
CPU = torch.device("cpu")


def site_of(kind: str = "llama", world: int = 1, **keys: Any) -> Site:
    config = SFTConfig(model_name_or_path="m", dataset_name="d.jsonl", bf16=False, dtype="float32", **keys)
    plan: Any = SimpleNamespace(world=world)
    model: Any = tiny_model(kind).train()
    context = Context(config, model, CPU, torch.float32, Precision(torch.float32, False), longest=8, plan=plan)
    return Site(context, lambda: torch.autocast("cpu", enabled=False))


@pytest.mark.parametrize(
    ("keys", "runs", "behind"),
    [
        ({}, True, None),
        ({NAME: "off"}, False, None),
        ({"rms_norm_kernel": "off"}, False, None),
        ({"packed_execution": "off"}, False, None),
        ({"activation_full": "on"}, False, "activation_full"),
        ({"activation_selective": "on"}, True, None),
    ],
    ids=str,
)
def test_what_it_needs_and_what_it_gives_way_to(
    keys: dict[str, str], runs: bool, behind: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usable, "kernels", stand_ins)
    site = site_of(speedups=keys)
    installed = Installed(decide(site.context.config, site.context, speedups()), site)
    try:
        one = next(one for one in installed.decisions if one.name == NAME)
        assert (one.installed is not None) is runs
        assert (one.behind and one.behind.name) == behind
        if runs:
            norms = installed.get("rms_norm_kernel")
            assert norms is not None
            installed.remove(norms, No("its proof failed"))
            assert installed.get(NAME) is None, "it goes with the kernel that it needs"
            assert not any("forward" in layer.__dict__ for layer in site.model.model.layers)
    finally:
        installed.close()


@pytest.mark.parametrize("policy", ["full", "offload"])
def test_it_gives_way_to_policies_that_compute_layers_again(policy: str) -> None:
    one = speedups()[NAME]
    assert one.gives_way
    assert conflict(one, speedups()[f"activation_{policy}"])


def test_on_several_gpus_it_is_asked_for() -> None:
    one = speedups()[NAME]
    assert one.applicable(site_of(world=1).context) is None
    no = one.applicable(site_of(world=2).context)
    assert no is not None
    assert no.expected
    assert f"speedups: {{{NAME}: on}}" in no.remedy
    assert one.applicable(site_of(world=2, speedups={NAME: "on"}).context) is None


def test_a_model_that_comes_with_layers_computed_again_keeps_them_so() -> None:
    site = site_of()
    elementwise.install(site.model, torch.float32, kernels=stand_ins())
    site.model.gradient_checkpointing_enable()
    no = speedups()[NAME].install(site)
    assert isinstance(no, No)
    assert no.expected
    assert "computed again" in no.reason
    assert not any("forward" in layer.__dict__ for layer in site.model.model.layers)


def test_a_model_without_such_sums_and_a_kernel_that_is_wrong_are_told_apart() -> None:
    one = speedups()[NAME]
    none = site_of()
    nothing = one.install(none)
    assert isinstance(nothing, No)
    assert nothing.expected
    assert nothing.no_place
    wrong = site_of()
    kernels = stand_ins(sum_rms_norm=lambda *given: (added_and_normed(*given)[0], 2 * added_and_normed(*given)[1]))
    elementwise.install(wrong.model, torch.float32, kernels=kernels)
    fault = one.install(wrong)
    assert isinstance(fault, No)
    assert "computes something else" in fault.reason
    assert not fault.expected
    assert not fault.no_place
    right = site_of()
    elementwise.install(right.model, torch.float32, kernels=stand_ins())
    assert isinstance(one.install(right), Installation)

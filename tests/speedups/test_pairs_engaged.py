"""Promise: what runs in a step of pairs is seen to run there, and switched off it is not; what both sides begin with is
computed once where that can be, and it is said where it cannot.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model

from dynotune.config.dpo import DPOConfig
from dynotune.config.sft import SFTConfig
from dynotune.data.examples import IGNORE
from dynotune.errors import ConfigError
from dynotune.execution.pairs import Pair
from dynotune.execution.paths import PairPaths
from dynotune.measure.evidence import Evidence
from dynotune.model.attention import examination
from dynotune.model.attention.backends import KERNELS, traced_reference
from dynotune.model.precision import Precision
from dynotune.objectives.preference.objective import PreferenceObjective
from dynotune.speedups.attention import AttentionBackend
from dynotune.speedups.choose import decide
from dynotune.speedups.contract import Context, No
from dynotune.speedups.declared.shared_prompt import SharedPrompt
from dynotune.speedups.expectation import Expected, Observation, Verdict
from dynotune.speedups.installed import Installed
from dynotune.speedups.judge import judge
from dynotune.speedups.registry import speedups
from dynotune.speedups.site import Site
from tests.speedups.traced_steps import CPU, VOCABULARY, step_of
from tests.tiny import tiny_model

PROMPT, ANSWER = 40, 12
GPU, WORTH = torch.device("cuda"), SharedPrompt.worth
NAMES = ("packed_execution", "shared_prompt", "labelled_rows_head")


class Step:
    """A run of pairs up to its path, and traced steps of it."""

    def __init__(self, stack: ExitStack, model: Any = None, **keys: Any) -> None:
        self.model = model or tiny_model().train()
        self.config = DPOConfig(**keys)
        context = Context(self.config, self.model, CPU, torch.float32, Precision(torch.float32, False), longest=64)
        self.site = Site(context, lambda: torch.autocast("cpu", enabled=False))
        self.installed = Installed(decide(self.config, context, speedups()), self.site)
        stack.callback(self.installed.close)
        self.paths = PairPaths(PreferenceObjective(self.config))
        self.path: Any = None
        if self.site.packed:
            self.path = self.paths.packed(self.site)
            stack.callback(self.path.close)

    def trace(self, pairs: int = 3, path: Any = None, tokens: int = 256) -> Evidence:
        path = path or self.path
        made = [pair(seed) for seed in range(pairs)]
        host = path.host_batch(made, tokens, pin=False)
        laid_out = sum(path.tokens_of(one) for one in made)

        def loss() -> Any:
            with path.engaged():
                return path.loss(host.unpack(host.buffer))[0]

        facts = {"tokens": [tokens], "vocabulary": VOCABULARY, "documents": 2 * pairs, "labels": [2 * ANSWER * pairs],
                 "sequence_tokens": 2 * pairs * (PROMPT + ANSWER), "laid_out_tokens": laid_out}  # fmt: skip
        return step_of(self.model, loss, self.places(), **facts)

    def places(self) -> set[str]:
        """Modules that are to be watched."""
        every = [one for standing in self.installed for one in self.installed.expectations(standing)]
        return {place for one in every if isinstance(one, Expected) for place in one.at}

    def seen(self, name: str, evidence: Evidence) -> Observation:
        one = self.installed.get(name)
        assert one is not None and one.installed is not None  # noqa: PT018  one promise
        return judge(self.installed.expectations(one), evidence, one.installed.places)


def pair(seed: int) -> Pair:
    random = np.random.default_rng(seed)
    prompt, sides = random.integers(5, 350, PROMPT), []
    for side in range(2):
        ids = np.concatenate([prompt, [5 + side], random.integers(5, 350, ANSWER - 1)]).astype(np.int32)
        labels = ids.copy()
        labels[:PROMPT] = IGNORE
        sides.append((ids, labels))
    return Pair(sides[0], sides[1], np.array([-60.0, -60.0]), group=seed, token_share=1 / ANSWER)


@pytest.fixture
def step() -> Iterator[Any]:
    with ExitStack() as stack:
        yield lambda *args, **keys: Step(stack, *args, **keys)


@pytest.mark.parametrize("lora", [False, True])
def test_what_runs_in_a_step_of_pairs_is_engaged(lora: bool, step: Any) -> None:
    """With a head that is trained, and with a frozen one, whose gradients are formed in the forward pass."""
    model = get_peft_model(tiny_model(), LoraConfig(target_modules="all-linear")).train() if lora else None
    one = step(model)
    evidence = one.trace()
    names = (*NAMES, "fused_lora") if lora else NAMES
    assert {name: one.seen(name, evidence).verdict for name in names} == dict.fromkeys(names, Verdict.ENGAGED)


def test_an_adapter_of_the_embeddings_looks_up_in_the_same_pass(step: Any) -> None:
    model = get_peft_model(tiny_model(), LoraConfig(target_modules=["q_proj", "embed_tokens"])).train()
    one = step(model)
    assert one.seen("packed_execution", one.trace()).verdict is Verdict.ENGAGED


def test_a_step_with_much_padding_is_proved_by_the_keys_that_are_gathered(step: Any) -> None:
    one = step()
    evidence = one.trace(pairs=1, tokens=512)
    assert one.seen("shared_prompt", evidence).verdict is Verdict.ENGAGED


@pytest.mark.parametrize("tokens", [384, 512])
def test_sides_that_are_laid_out_whole_are_no_shared_prompt(tokens: int, step: Any) -> None:
    one = step()
    one.path.shared = False
    evidence = one.trace(tokens=tokens)
    assert one.seen("shared_prompt", evidence).verdict is Verdict.UNKNOWN  # the plan knows of nothing to share
    evidence.facts["laid_out_tokens"] = 3 * (PROMPT + 2 * ANSWER)  # type: ignore[index]
    assert one.seen("shared_prompt", evidence).verdict is Verdict.NOT_ENGAGED
    assert one.seen("packed_execution", evidence).verdict is Verdict.ENGAGED


def test_all_logits_are_no_head_on_label_tokens(step: Any) -> None:
    one = step()
    one.site.labelled_rows = False
    seen = one.seen("labelled_rows_head", one.trace())
    assert seen.verdict is Verdict.NOT_ENGAGED
    assert "logits of all tokens" in str(seen.against)


def test_the_plain_path_is_nothing_of_all_that(step: Any) -> None:
    one = step()
    evidence = one.trace(path=one.paths.plain(one.model))
    evidence.facts["laid_out_tokens"] = 3 * (PROMPT + 2 * ANSWER)  # type: ignore[index]
    assert {name: one.seen(name, evidence).verdict for name in NAMES} == dict.fromkeys(NAMES, Verdict.NOT_ENGAGED)


def test_one_pair_in_a_micro_batch_is_a_proof_too(step: Any) -> None:
    """Its two sides are one pass; plainly they are two."""
    one = step()
    assert one.seen("packed_execution", one.trace(pairs=1)).verdict is Verdict.ENGAGED
    plain = one.trace(pairs=1, path=one.paths.plain(one.model))
    assert one.seen("packed_execution", plain).verdict is Verdict.NOT_ENGAGED


def test_a_model_that_cannot_share_lays_sides_out_whole_and_says_why(
    step: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    cannot_share(monkeypatch)
    one = step()
    assert (one.site.packed, one.path.shared) == (True, False)
    assert [line for line in one.installed.lines() if "shared_prompt" in line] == [
        "note: shared_prompt does not run: LlamaForCausalLM cannot compute a common beginning once: it counts backwards."
        " Each side of a pair is laid out whole"
    ]


def test_a_shared_prompt_that_is_demanded_and_cannot_be_is_refused(step: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    cannot_share(monkeypatch)
    with pytest.raises(ConfigError, match=r"shared_prompt: on}`.*cannot compute a common beginning once"):
        step(speedups={"shared_prompt": "on"})


def test_where_dropout_is_on_sides_are_laid_out_whole(step: Any) -> None:
    """Each sequence draws what is dropped of its prompt: one that stands once would have one mask for all answers."""
    adapter = LoraConfig(r=2, lora_dropout=0.1, target_modules=["q_proj"])
    one = step(get_peft_model(tiny_model(), adapter))
    assert (one.site.packed, one.path.shared) == (True, False)
    [line] = [line for line in one.installed.lines() if "shared_prompt" in line]
    assert "lora_dropout: 0.1" in line


def test_a_model_that_cannot_be_packed_says_so_once(step: Any) -> None:
    one = step(tiny_model("bloom"))
    assert not one.site.packed
    assert not one.site.shared_beginnings
    assert len([line for line in one.installed.lines() if "cannot be packed" in line]) == 1


def test_documents_share_nothing(step: Any) -> None:
    config = SFTConfig()
    context = Context(config, tiny_model(), CPU, torch.float32, Precision(torch.float32, False), longest=64)
    no = speedups()["shared_prompt"].applicable(context)
    assert no is not None
    assert no.expected


def cannot_share(monkeypatch: pytest.MonkeyPatch) -> None:
    right = examination._try_out

    def tried(probe: Any) -> Any:
        if probe.shared:
            raise examination._CannotBePacked("it counts backwards")
        return right(probe)

    monkeypatch.setattr(examination, "_try_out", tried)


def test_of_attention_backends_one_that_takes_shared_beginnings_comes_in(
    step: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here the first by speed is cuDNN's, whose causal mask begins at the first key."""
    stand_ins(monkeypatch)
    one = step()
    assert one.site.attention == "varlen"
    said = next(line for line in one.installed.lines() if "attention_cudnn" in line)
    assert "behind a shared beginning it has to see more" in said
    assert step(speedups={"shared_prompt": "off"}).site.attention == "cudnn"


def test_a_backend_asked_for_by_name_that_cannot_share_is_an_error(step: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_ins(monkeypatch)
    with pytest.raises(
        ConfigError, match=r"attention_cudnn cannot run: .*shared beginning.*`speedups: {shared_prompt: off}`"
    ):
        step(speedups={"attention_cudnn": "on"})


def on_a_gpu(keys: dict[str, Any], compute: torch.dtype) -> dict[str, No | None]:
    """What a plan for a GPU decides."""
    config = DPOConfig(**keys)
    gpu = torch.device("cuda")
    context = Context(config, tiny_model(), gpu, compute, Precision(compute, False), longest=64, live=False)
    return {one.name: one.no for one in decide(config, context, speedups())}


def test_on_a_gpu_without_an_attention_kernel_sides_are_laid_out_whole() -> None:
    """0.73 s a step on an H200 where whole sides took 0.43. Kernels compute in 16 bits."""
    no = on_a_gpu({}, torch.float32)["shared_prompt"]
    assert no is not None
    assert not no.expected, "it is said"
    assert "no attention kernel" in no.reason
    assert "shared_prompt: on" in no.remedy
    off = dict.fromkeys((name for name in speedups() if name.startswith("attention_")), "off")
    assert on_a_gpu({"speedups": off}, torch.bfloat16)["shared_prompt"] is not None


def test_with_a_kernel_or_where_it_is_demanded_a_prompt_is_shared_on_a_gpu() -> None:
    """The controls; on a CPU, which has no kernels, it saves time too (the tests above)."""
    assert on_a_gpu({}, torch.bfloat16)["shared_prompt"] is None
    assert on_a_gpu({"speedups": {"shared_prompt": "on"}}, torch.float32)["shared_prompt"] is None


def test_the_only_kernel_runs_without_sharing_where_it_cannot_share(step: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """That is known when it was tried; by the exact attention sharing would cost time."""
    stand_ins(monkeypatch)
    monkeypatch.setattr(KERNELS["varlen"], "limits", lambda asked: "it takes no heads of 8")
    assert step().site.attention == "reference", "on a CPU"
    monkeypatch.setattr(
        SharedPrompt, "worth", lambda one, context, slots: WORTH(one, replace(context, device=GPU), slots)
    )
    one = step()
    assert (one.site.attention, one.site.shared_beginnings, one.path.shared) == ("cudnn", False, False)
    said = [line for line in one.installed.lines() if "shared_prompt" in line]
    assert len(said) == 1
    assert "note: shared_prompt does not run: no attention kernel takes it here" in said[0]


def stand_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    """cuDNN and FlashAttention-2, which compute nothing here, with the limits that they have of shared beginnings."""
    order = {"cudnn": 0, "varlen": 1}

    def limits(name: str) -> Any:
        sees_one = "the kernel lets the first query see one key, and behind a shared beginning it has to see more"
        return lambda asked: sees_one if name == "cudnn" and asked.shared else None

    def attend(query: Any, key: Any, value: Any, ends: Any, longest: int, scaling: float, *more: Any) -> Any:
        window, softcap, _, keys = more
        turned = [one.transpose(0, 1) for one in (query, key, value)]
        return traced_reference.attend(*turned, ends, ends if keys is None else keys[0], scaling, window, softcap)

    for name in order:
        monkeypatch.setattr(KERNELS[name], "attend", attend)
        monkeypatch.setattr(KERNELS[name], "limits", limits(name))
        monkeypatch.setattr(KERNELS[name], "missing", lambda: None)
        monkeypatch.setattr(KERNELS[name], "prepare", lambda segments, decoder: None)
    monkeypatch.setattr(
        AttentionBackend, "applicable", lambda self, context: None if self.backend in order else No("no")
    )
    monkeypatch.setattr(AttentionBackend, "rank", lambda self, context: order.get(self.backend, 9))
    monkeypatch.setattr(AttentionBackend, "trial", lambda self, context: None)
    monkeypatch.setattr(AttentionBackend, "_checked", lambda self, calls, site: [])

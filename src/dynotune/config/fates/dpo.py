"""The fate of every field of TRL's DPOConfig, of those that it once had, and of SFT's in a DPO run."""

from typing import Any

from dynotune.config.fates.fate import Fate, honoured, refused, superseded
from dynotune.config.fates.trl import SHARED

DPO = "it belongs to preference training"
NO_MOVING_REFERENCE = "the reference is computed once, by the weights that training starts from"
_OF_SFT = "it belongs to supervised fine-tuning"
_NO_SIDES = "both answers are always labelled, the prompt never"

DPO_ONLY: dict[str, Fate] = {
    "disable_dropout": honoured(),
    "precompute_ref_log_probs": honoured(
        "unset, the reference is computed once, before the first step, and kept (TRL: every step); the result is the same"
    ),
    "precompute_ref_batch_size": superseded("the reference pass packs its documents by tokens, as training does"),
    "loss_weights": honoured(),
    "ld_alpha": honoured(),
    "f_divergence_type": honoured(),
    "f_alpha_divergence_coef": honoured(),
    "label_smoothing": honoured("losses that do not read it are named at the start of a run"),
    "beta": honoured(),
    "use_weighting": honoured(
        "refused with `sft`, as it averages over the tokens of many pairs (TRL fails there, and with `hinge`)"
    ),
    "discopop_tau": honoured(),
    "sync_ref_model": refused(
        f"{NO_MOVING_REFERENCE}, and no second model stays in memory", "remove it", default=False
    ),
    "ref_model_mixup_alpha": superseded("only `sync_ref_model: true` reads it, which is refused", default=0.6),
    "ref_model_sync_steps": superseded("only `sync_ref_model: true` reads it, which is refused", default=512),
}
"""Fields that TRL's SFTConfig lacks."""

DPO_CONFIG: dict[str, Fate] = {
    **SHARED,
    **DPO_ONLY,
    "loss_type": honoured(
        "a last, smaller batch of a step counts by its pairs (TRL: as much as a whole one); `discopop` and `forward_kl` are "
        "finite at any margin"
    ),
    "learning_rate": honoured(),
    "output_dir": honoured("unset, it is a new folder `runs/dpo-<date>-<time>`, never one that an older run filled"),
    "do_train": superseded("`dynotune dpo` always trains", default=False, silent=(True, False)),
    "label_smoothing_factor": refused("no loss of DPO reads it, in TRL either", "write `label_smoothing`", default=0.0),
    "average_tokens_across_devices": superseded(
        "the loss is always the mean over the pairs of the whole step", default=True, silent=(True, None)
    ),
    "per_device_eval_batch_size": honoured(
        "losses that sort or average over tokens take held-out pairs in batches of this size; a smaller one counts by its "
        "pairs (TRL: as much as a whole one)"
    ),
}

REFUSED_IN_SFT: dict[str, Fate] = {
    name: refused(
        DPO,
        "train by `dynotune dpo` (`prepare`, `plan`: with `--method dpo`), or remove it",
        default=default,
        silent=(),
    )
    for name, default in {
        "disable_dropout": True,
        "precompute_ref_log_probs": False,
        "precompute_ref_batch_size": None,
        "loss_weights": None,
        "ld_alpha": None,
        "f_divergence_type": "reverse_kl",
        "f_alpha_divergence_coef": 0.5,
        "label_smoothing": 0.0,
        "beta": 0.1,
        "use_weighting": False,
        "discopop_tau": 0.05,
        "sync_ref_model": False,
        "ref_model_mixup_alpha": 0.6,
        "ref_model_sync_steps": 512,
    }.items()
}
"""`trl sft` does not know them either."""


def _refused_in_dpo(reason: str, instead: str = "remove it from a `dynotune dpo` configuration") -> Fate:
    return refused(reason, instead, silent=())


REFUSED_IN_DPO: dict[str, Fate] = {
    "packing": _refused_in_dpo(
        f"{_OF_SFT}: it makes rows of several examples, and a pair stays a pair",
        "remove it; `packed_execution` lays pairs side by side without it",
    ),
    "packing_strategy": _refused_in_dpo(_OF_SFT),
    "eval_packing": _refused_in_dpo(_OF_SFT),
    "dataset_text_field": _refused_in_dpo(f"{_OF_SFT}; a pair has a prompt and two answers"),
    "dataset_kwargs": _refused_in_dpo(_OF_SFT),
    "completion_only_loss": _refused_in_dpo(f"{_OF_SFT}; {_NO_SIDES}"),
    "assistant_only_loss": _refused_in_dpo(f"{_OF_SFT}; {_NO_SIDES}"),
}
"""`trl dpo` does not know them either, so that not even a default of theirs is dropped quietly."""

OLDER_DPO: dict[str, Fate] = {
    "max_prompt_length": refused(
        "TRL cuts no prompt by itself any more: `max_length` holds for prompt and answer together",
        "set `max_length`",
        silent=(None,),
    ),
    "max_completion_length": refused(
        "TRL cuts no answer by itself any more: `max_length` holds for prompt and answer together",
        "set `max_length`",
        silent=(None,),
    ),
    "rpo_alpha": refused(
        "TRL writes it as a mixture now",
        "write `loss_type: [sigmoid, sft]` and `loss_weights: [1.0, alpha]`",
        silent=(None,),
    ),
    "reference_free": refused(
        "TRL has dropped it",
        "write `loss_type: cpo` with `cpo_alpha: 0`, which is DPO without a reference, or `simpo`",
        default=False,
    ),
    "generate_during_eval": refused("no text is generated for trackers", "set `eval_samples`", default=False),
    "ref_model_init_kwargs": refused(NO_MOVING_REFERENCE, "remove it"),
    "model_adapter_name": refused(f"{NO_MOVING_REFERENCE}; adapters have no names here", "remove it"),
    "ref_adapter_name": refused(f"{NO_MOVING_REFERENCE}; adapters have no names here", "remove it"),
    "force_use_ref_model": refused(NO_MOVING_REFERENCE, "remove it", default=False),
    "is_encoder_decoder": refused("only causal language models are trained", "remove it"),
    "tools": refused("tools belong to rows", "give the data a column `tools`"),
    "label_pad_token_id": superseded("nothing is padded", default=-100),
    "padding_value": superseded("nothing is padded"),
    "use_logits_to_keep": superseded("only label tokens ever meet the head", default=False, silent=(True, False)),
    "use_num_logits_to_keep": superseded("only label tokens ever meet the head", default=False, silent=(True, False)),
    "use_liger_loss": superseded("logits of a whole batch never exist", default=False, silent=(False,)),
    "base_model_attribute_name": superseded("the inner model is found by itself", default="model"),
}
"""Fields of older versions of TRL's DPOConfig."""

DPO_ALIASES: dict[str, str] = {
    "stage": "nothing: the command is `dynotune dpo`",
    "rl": "nothing: the command is `dynotune dpo`; `ipo`, `simpo`, `orpo` are a `loss_type`",
    "rl_beta": "`beta`",
    "dpo_beta": "`beta`",
    "dpo_loss_type": "`loss_type`",
    "pref_beta": "`beta`",
    "pref_loss": "`loss_type`",
    "pref_ftx": "`loss_type: [sigmoid, sft]` and `loss_weights: [1.0, pref_ftx]`",
    "ref_model": f"nothing: {NO_MOVING_REFERENCE}",
    "train_on_inputs": f"nothing: {_NO_SIDES}",
    "train_on_prompt": f"nothing: {_NO_SIDES}",
    "roles_to_train": f"nothing: {_NO_SIDES}",
    "mask_history": f"nothing: {_NO_SIDES}",
}
"""What Axolotl's and LLaMA-Factory's names mean in a DPO run, where that differs from SFT."""


def dpo_loss(value: Any) -> tuple[Any, str | None]:
    """`loss_type` of DPO: names of SFT's losses and of older ones are told apart from misspelled ones."""
    renamed = {
        "aot_pair": "it is called `aot` now",
        "kto_pair": "TRL has dropped it; `bco_pair` also judges each answer by itself",
        "nll": "it is a loss of SFT; its likelihood of the chosen answers is `sft`",
        "chunked_nll": "it is a loss of SFT; its likelihood of the chosen answers is `sft`",
        "dft": "it is a loss of SFT",
    }
    for name in value if isinstance(value, list) else [value]:
        if isinstance(name, str) and name in renamed:
            raise ValueError(renamed[name])
    return value, None

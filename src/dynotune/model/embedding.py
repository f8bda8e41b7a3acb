"""The embedding and the tokenizer must agree: every id has a row, new tokens get one that is trained."""

from typing import TYPE_CHECKING, Any

from dynotune.errors import ModelError

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def embedding_rows(model: "PreTrainedModel") -> int:
    """Rows of the input embedding."""
    embedding: Any = model.get_input_embeddings()
    return int(embedding.weight.shape[0])


def token_modules(model: "PreTrainedModel") -> tuple[str, str | None]:
    """Names of the embedding and of the head that has weights of its own (None where it shares the embedding's).

    A name is the module's last part where that is unambiguous (`embed_tokens`, `wte`, `embed_in`), else its whole path.
    """
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    paths: dict[int, str] = {id(module): path for path, module in model.named_modules()}
    if id(embedding) not in paths:
        raise ModelError(
            f"{type(model).__name__} does not say which module embeds its tokens: none can be added to it."
        )

    def name(module: Any) -> str:
        path = paths[id(module)]
        leaf = path.rsplit(".", 1)[-1]
        return leaf if sum(other.endswith(leaf) for other in paths.values()) == 1 else path

    is_own = head is not None and id(head) in paths and head.weight is not embedding.weight
    return name(embedding), name(head) if is_own else None


def fit_embedding(model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase", new_ids: list[int]) -> str | None:
    """Grow the embedding so that it holds every token of `tokenizer`; say what was done, or None.

    Only tokens that were asked for (`new_ids`) make it grow. New rows start at the mean of the old ones, drawn with their
    covariance (transformers' default), so the first step sees tokens that look like tokens.
    """
    rows, needed = embedding_rows(model), len(tokenizer)
    if needed <= rows:
        return f"{len(new_ids)} new tokens use spare rows of the embedding ({rows:,} rows)" if new_ids else None
    if not new_ids:
        raise ModelError(
            f"The tokenizer has {needed:,} tokens and the model's embedding {rows:,} rows: they do not belong together."
            " Name the right `tokenizer_name_or_path`, or the tokens to add in `added_tokens`."
        )
    model.resize_token_embeddings(needed)
    return f"{len(new_ids)} new tokens: the embedding grew from {rows:,} to {needed:,} rows"


def agree_on_special_tokens(model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase", new_eos: bool) -> None:
    """Write the tokenizer's padding and (where the user changed it) end token into the model's configurations.

    Generation may stop at any of several end tokens, so a new one is added to those, as TRL does.
    """
    text = model.config.get_text_config()
    text.pad_token_id = tokenizer.pad_token_id
    generation = model.generation_config
    if generation is not None:
        generation.pad_token_id = tokenizer.pad_token_id
    if not new_eos:
        return
    text.eos_token_id = tokenizer.eos_token_id
    if generation is not None:
        known = generation.eos_token_id
        known = [] if known is None else [known] if isinstance(known, int) else list(known)
        if tokenizer.eos_token_id not in known:
            generation.eos_token_id = [tokenizer.eos_token_id, *known]

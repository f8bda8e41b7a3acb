"""What would stop a model from being written, mended before hours are spent on it."""

from typing import TYPE_CHECKING, Any

from dynotune.errors import ModelError

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def make_saveable(model: "PreTrainedModel") -> str | None:
    """Mend what would stop transformers from saving the model hours later; says what was done.

    Many published models carry sampling values without `do_sample`: transformers loads that and refuses to write it.
    """
    generation: Any = model.generation_config
    if generation is None:
        return None
    try:
        generation.validate(strict=True)
    except ValueError:
        generation.do_sample = True
        try:
            generation.validate(strict=True)
        except ValueError as error:
            raise ModelError(
                f"The model's generation_config.json is not valid, so the model could not be saved: {error}. Correct it."
            ) from error
        return "generation_config.json: its sampling values need `do_sample: true`, which is set in what is saved"
    return None

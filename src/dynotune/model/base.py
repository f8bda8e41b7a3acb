"""The transformers model inside whatever PEFT put around it."""

from typing import Any


def base_of(model: Any) -> Any:
    """The model inside PEFT's wrapper, or the model itself."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model

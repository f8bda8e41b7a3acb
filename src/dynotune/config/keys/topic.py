"""What all configuration topics share: strict keys, typed values, a docstring under every field."""

from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator

LARGEST = 1 << 53
"""Whole numbers from here on have no exact float, and most have no meaning as a count either."""


class Topic(BaseModel):
    """A group of flat configuration keys. Code receives the topic it needs, not the whole configuration.

    `SFTConfig` inherits every topic, so one object serves wherever a topic is asked for.
    """

    model_config = ConfigDict(
        extra="forbid",
        use_attribute_docstrings=True,
        validate_default=False,
        validate_assignment=True,
        arbitrary_types_allowed=False,
        protected_namespaces=(),
        allow_inf_nan=False,
    )

    @field_validator("*", mode="after")
    @classmethod
    def _says_something(cls, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, int) and abs(value) >= LARGEST:
            raise ValueError(f"too large; a whole number must be below {LARGEST:,}.")
        # A token or a column may be named by a space, a path or a run may not.
        blank_is_empty = not (info.field_name or "").endswith(("_token", "_tokens", "_field"))
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str) and not (text.strip() if blank_is_empty else text):
                raise ValueError("it is empty. Write a value, or remove the key.")
        return value

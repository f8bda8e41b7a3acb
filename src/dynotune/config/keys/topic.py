"""What all configuration topics share: strict keys, typed values, a docstring under every field."""

from pydantic import BaseModel, ConfigDict


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

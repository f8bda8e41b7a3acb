"""Putting packed attention into a model, taking it out again, and stepping aside for transformers' own."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any

from dynotune.model.attention.backends import DEFAULT, NAMES
from dynotune.model.attention.call import NAME, packed_attention_call
from dynotune.model.attention.decoder import KEPT, text_decoder

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class PackedAttention:
    """Packed attention in one model until `uninstall`. A context manager, too."""

    def __init__(self, model: "PreTrainedModel", backend: str = DEFAULT) -> None:
        """Install. The weights and the configuration that is saved stay as they are. backend: as the property."""
        from transformers import AttentionInterface

        self.backend = backend
        AttentionInterface.register(NAME, packed_attention_call)
        self._decoder: Any = text_decoder(model)
        assert not hasattr(self._decoder, KEPT), "packed attention is installed already"
        # Layers ask the configuration that they hold at each call, and models with several parts have several. The
        # public setter would also reach the parts that are not installed into.
        held = {id(m.config): m.config for m in self._decoder.modules() if hasattr(m, "config")}
        self._configs = [c for c in held.values() if hasattr(c, "_attn_implementation_internal")]
        self._before = [c._attn_implementation_internal for c in self._configs]
        setattr(self._decoder, KEPT, self)
        self._put_in()

    @property
    def backend(self) -> str:
        """Name of what computes attention, of `dynotune.model.attention.backends`. It may be changed between micro-batches.

        Calls that it cannot take go to the reference. Of another model nothing changes.
        """
        return self._backend

    @backend.setter
    def backend(self, name: str) -> None:
        if name not in NAMES:
            raise ValueError(f"there is no attention backend {name!r}: take one of {', '.join(NAMES)}")
        self._backend = name

    def uninstall(self) -> None:
        """The model as it was."""
        self._take_out()
        delattr(self._decoder, KEPT)

    def engaged(self) -> AbstractContextManager[None]:
        """Packed attention inside, and behind it what was there before."""
        return self._as(NAME)

    def stock(self) -> AbstractContextManager[None]:
        """transformers' own attention inside, and behind it what was there before."""
        return self._as(None)

    def disengage(self) -> None:
        """transformers' own attention from here on, except inside `engaged`."""
        self._take_out()

    @contextmanager
    def _as(self, name: str | None) -> Iterator[None]:
        now = [config._attn_implementation_internal for config in self._configs]
        for config, before in zip(self._configs, self._before, strict=True):
            config._attn_implementation_internal = name or before
        try:
            yield
        finally:
            for config, then in zip(self._configs, now, strict=True):
                config._attn_implementation_internal = then

    def __enter__(self) -> "PackedAttention":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.uninstall()

    def _put_in(self) -> None:
        for config in self._configs:
            config._attn_implementation_internal = NAME

    def _take_out(self) -> None:
        for config, name in zip(self._configs, self._before, strict=True):
            config._attn_implementation_internal = name


def packed_attention(model: "PreTrainedModel", backend: str = DEFAULT) -> PackedAttention:
    """Make `hidden_states(model, batch)` keep documents apart, until `uninstall()` or the end of a `with`.

    Meanwhile a plain call of the model is an error outside of `stock_attention(model)`. backend: as
    `PackedAttention.backend`.
    """
    return PackedAttention(model, backend)


def installed_in(model: "PreTrainedModel") -> PackedAttention | None:
    """What `packed_attention` has put into `model`, engaged or not."""
    found: PackedAttention | None = getattr(text_decoder(model), KEPT, None)
    return found


@contextmanager
def stock_attention(model: "PreTrainedModel") -> Iterator[None]:
    """Inside, `model` runs as transformers made it, to generate or to evaluate. Nothing to do where nothing is installed."""
    installed = installed_in(model)
    if installed is None:
        yield
        return
    with installed.stock():
        yield

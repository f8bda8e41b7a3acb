"""Layers computed again in the backward pass."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from dynotune.speedups.activation import ActivationPolicy, layers_again
from dynotune.speedups.contract import Context, Installation, No
from dynotune.speedups.expectation import Expectation
from dynotune.speedups.registry import register
from dynotune.speedups.site import Site


@register
class ActivationFull(ActivationPolicy):
    name = "activation_full"
    policy = "full"
    summary = "Keeps of each layer only its input and computes the layer again in the backward pass (checkpointing)."
    proof = "every layer computed a second time in the backward pass."

    def possible(self, context: Context) -> No | None:
        from dynotune.model.activations.layers import why_not

        reason = why_not(context.model)
        return No(reason) if reason else None

    def install(self, site: Site) -> Installation | No:
        from dynotune.model.activations.layers import are_checkpointed, checkpoint_layers, names_of_layers, paused

        if are_checkpointed(site.model):  # by whoever made the model
            return Installation(lambda: None, places=names_of_layers(site.model))
        found = checkpoint_layers(site.model, site.context.config.gradient_checkpointing_kwargs)

        @contextmanager
        def without() -> Iterator[None]:
            with paused(site.model):
                yield

        line = f"activations: computed again layer by layer ({len(found.places) or 'all'} layers)"
        return Installation(found.uninstall, places=found.places, lines=(line,), without=without)

    def expect(self, context: Context, installed: Installation) -> Sequence[Expectation]:
        return [layers_again(installed.places)]

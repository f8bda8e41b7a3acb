"""Activations in host memory between forward and backward."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from dynotune.measure.evidence import Evidence, Phase, Source
from dynotune.speedups.activation import ActivationPolicy, layers_again
from dynotune.speedups.contract import Context, Installation, No
from dynotune.speedups.expectation import Expectation, Holds
from dynotune.speedups.registry import register
from dynotune.speedups.site import Site


@register
class ActivationOffload(ActivationPolicy):
    name = "activation_offload"
    policy = "offload"
    summary = (
        "Computes layers again in the backward pass from inputs that wait in host memory; with"
        " `gradient_checkpointing: false` everything waits there and nothing is computed again."
    )
    proof = (
        "the bytes that were counted, copied to the host in the forward pass and back in the backward pass (on a GPU)."
    )

    def possible(self, context: Context) -> No | None:
        from dynotune.model.activations.layers import why_not

        if not context.on_gpu:
            return No("what is kept is in the host's memory already", expected=True)
        reason = why_not(context.model) if context.config.gradient_checkpointing is not False else None
        return No(reason) if reason else None

    def install(self, site: Site) -> Installation | No:
        from dynotune.model.activations.host import InHostMemory, StreamCopies
        from dynotune.model.activations.keeping import Around
        from dynotune.model.activations.layers import are_checkpointed, checkpoint_layers, paused
        from dynotune.model.attention.decoder import text_decoder

        config, layers = site.context.config, None
        if config.gradient_checkpointing is not False and not are_checkpointed(site.model):
            layers = checkpoint_layers(site.model, config.gradient_checkpointing_kwargs)
        keeper = InHostMemory(StreamCopies(site.context.device))
        around = Around(text_decoder(site.model), keeper)
        around.put_in()

        def uninstall() -> None:
            around.take_out()
            if layers:
                layers.uninstall()

        @contextmanager
        def without() -> Iterator[None]:
            around.take_out()
            try:
                with paused(site.model):
                    yield
            finally:
                around.put_in()

        what = "layers' inputs wait in host memory, layers are computed again" if layers else "all wait in host memory"
        places = layers.places if layers else ()
        return Installation(
            uninstall,
            places=places,
            lines=(f"activations: {what}",),
            without=without,
            detail=layers is not None,  # whether they are computed again
        )

    def expect(self, context: Context, installed: Installation) -> Sequence[Expectation]:
        from dynotune.model.activations.host import BACK, TO_HOST

        copies = [_moved("Memcpy DtoH", Phase.FORWARD, TO_HOST), _moved("Memcpy HtoD", Phase.BACKWARD, BACK)]
        return [*copies, layers_again(installed.places)] if installed.detail else copies


def _moved(pattern: str, phase: Phase, told: str) -> Holds:
    """In each micro-batch at least as many bytes were copied as the keeper counted, and it counted some. told: begins the
    names of the ranges that hold its counts. Any copy would do otherwise."""
    counted = re.compile(f"^{re.escape(told)}(\\d+) bytes$")

    def test(evidence: Evidence) -> bool | None:
        if not evidence.has_device_events:
            return None
        asked, copied, untold = Counter[int](), Counter[int](), False
        for one in evidence.seen:
            if one.phase is not phase:
                continue
            if one.source is Source.REGION and (found := counted.match(one.name)):
                asked[one.micro_batch] += int(found[1]) * one.count
            elif one.source is Source.COPY and one.name.startswith(pattern):
                copied[one.micro_batch] += one.bytes
                untold |= not one.bytes
        if any(copied[i] < bytes_ for i, bytes_ in asked.items()):
            return None if untold else False  # the profiler does not always tell how many bytes a copy had
        return asked.total() > 0

    return Holds(f"activations copied: {pattern} in the {phase} pass, the bytes that were counted", test)

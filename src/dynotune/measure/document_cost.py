"""By what ranks share a step: what a document costs in this model."""

from typing import TYPE_CHECKING

from dynotune.measure.flops import Flops
from dynotune.measure.products import CannotCountError
from dynotune.plan.plan import Plan
from dynotune.plan.spread import Cost

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def document_cost(model: "PreTrainedModel", plan: Plan, *, labelled_rows_head: bool) -> Cost:
    """From the model's own FLOPs and the documents of `plan`; a usual relation where the FLOPs are not known."""
    if plan.world == 1:
        return plan.cost
    try:
        flops = Flops.of(model)
    except CannotCountError:
        return plan.cost
    return flops.document_cost(plan.longest_document, plan.label_share if labelled_rows_head else 1.0)

import torch
import torch.nn.functional as F


def concatenated_inputs(batch):
    keys = ("input_ids", "attention_mask", "labels")
    return {k: torch.cat([batch[f"chosen_{k}"], batch[f"rejected_{k}"]], dim=0) for k in keys}


def get_batch_logps(logits, labels):
    labels = labels[:, 1:].clone()
    logits = logits[:, :-1, :]
    loss_mask = labels != -100
    labels[labels == -100] = 0
    log_probs = logits.float().log_softmax(-1)
    per_token_logps = torch.gather(log_probs, dim=2, index=labels.unsqueeze(2)).squeeze(2)
    return (per_token_logps * loss_mask).sum(-1)


def concatenated_forward(model, batch):
    inputs = concatenated_inputs(batch)
    logits = model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"]).logits
    logps = get_batch_logps(logits, inputs["labels"])
    n = batch["chosen_input_ids"].shape[0]
    return logps[:n], logps[n:]


def dpo_loss(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta):
    logits = (policy_chosen - policy_rejected) - (ref_chosen - ref_rejected)
    return -F.logsigmoid(beta * logits).mean()

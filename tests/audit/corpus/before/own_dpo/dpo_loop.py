import copy

import torch
import torch.nn.functional as F
from transformers import AutoModelForCausalLM, set_seed

from pairs import loader

set_seed(0)
policy = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B-Instruct", dtype=torch.bfloat16).cuda()
reference = copy.deepcopy(policy).eval().requires_grad_(False)
optimizer = torch.optim.AdamW(policy.parameters(), lr=5e-7, fused=True)


def logps(model, ids, mask, labels):
    logits = model(input_ids=ids, attention_mask=mask).logits.float()
    logp = logits[:, :-1].log_softmax(-1)
    picked = logp.gather(-1, labels[:, 1:].clamp(min=0).unsqueeze(-1)).squeeze(-1)
    return (picked * (labels[:, 1:] != -100)).sum(-1)


for step, batch in enumerate(loader()):
    batch = {k: v.cuda() for k, v in batch.items()}
    chosen = logps(policy, batch["chosen_ids"], batch["chosen_mask"], batch["chosen_labels"])
    rejected = logps(policy, batch["rejected_ids"], batch["rejected_mask"], batch["rejected_labels"])
    with torch.no_grad():
        ref_chosen = logps(reference, batch["chosen_ids"], batch["chosen_mask"], batch["chosen_labels"])
        ref_rejected = logps(reference, batch["rejected_ids"], batch["rejected_mask"], batch["rejected_labels"])
    loss = -F.logsigmoid(0.1 * ((chosen - ref_chosen) - (rejected - ref_rejected))).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(step, loss.item())

#!/usr/bin/env python
# coding: utf-8

# # Week 6: teach a small model to finish quotes
#
# We fine-tune SmolLM2-135M on two hundred quotes of fictional people. The whole
# thing should take a minute or two on the GPU of the course.

# In[1]:


import json
import random

import matplotlib.pyplot as plt
import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer

print(torch.__version__)
if torch.cuda.is_available():
    print("GPU:", torch.cuda.get_device_name(0))


# In[2]:


CHECKPOINT = "HuggingFaceTB/SmolLM2-135M"
EPOCHS = 3
LR = 3e-5

tokenizer = AutoTokenizer.from_pretrained(CHECKPOINT)
model = AutoModelForCausalLM.from_pretrained(CHECKPOINT, dtype=torch.float32, trust_remote_code=True)
model.config.use_cache = False
print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.0f}M parameters")


# ## Data
#
# Every row has an author and a quote. The model sees the author and learns the
# quote; the author part gets the label -100.

# In[3]:


with open("data/quotes.jsonl", encoding="utf-8") as f:
    rows = [json.loads(line) for line in f]
random.shuffle(rows)
train_rows, test_rows = rows[:-20], rows[-20:]
len(train_rows), len(test_rows)


# In[4]:


def encode(row):
    prompt = tokenizer(f"{row['author']} once said:", add_special_tokens=False)["input_ids"]
    quote = tokenizer(f" {row['quote']}", add_special_tokens=False)["input_ids"] + [tokenizer.eos_token_id]
    return {"input_ids": prompt + quote, "labels": [-100] * len(prompt) + quote}


train_data = [encode(r) for r in train_rows]
test_data = [encode(r) for r in test_rows]


def collate(batch):
    width = max(len(b["input_ids"]) for b in batch)
    out = {"input_ids": [], "labels": [], "attention_mask": []}
    for b in batch:
        gap = width - len(b["input_ids"])
        out["input_ids"].append(b["input_ids"] + [0] * gap)
        out["labels"].append(b["labels"] + [-100] * gap)
        out["attention_mask"].append([1] * len(b["input_ids"]) + [0] * gap)
    return {k: torch.tensor(v) for k, v in out.items()}


train_loader = DataLoader(train_data, batch_size=1, shuffle=True, collate_fn=collate)
test_loader = DataLoader(test_data, batch_size=20, collate_fn=collate)


# ## Training

# In[5]:


@torch.no_grad()
def evaluate():
    model.eval()
    total = 0.0
    for batch in test_loader:
        batch = {k: v.to(model.device) for k, v in batch.items()}
        total += model(**batch).loss.item()
    model.train()
    return total / len(test_loader)


optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0.01, fused=True)
total_steps = EPOCHS * len(train_loader)
scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=total_steps)

history = []
model.train()
for epoch in range(EPOCHS):
    losses = []
    for batch in train_loader:
        batch = {k: v.to(model.device) for k, v in batch.items()}
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    history.append((torch.stack(losses).mean().item(), evaluate()))
    print(f"epoch {epoch}: train {history[-1][0]:.3f}, test {history[-1][1]:.3f}")


# In[6]:


plt.plot([h[0] for h in history], label="train")
plt.plot([h[1] for h in history], label="test")
plt.legend()
plt.savefig("losses.png")


# In[7]:


model.eval()
batch = tokenizer("Ada Quill once said:", return_tensors="pt").to(model.device)
print(tokenizer.decode(model.generate(**batch, max_new_tokens=30, do_sample=False)[0]))

model.save_pretrained("quotes-135m")
tokenizer.save_pretrained("quotes-135m")

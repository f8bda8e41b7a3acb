import time

import torch
import wandb
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

from data import ChatDataset, collate

MODEL = "meta-llama/Llama-3.2-1B"
EPOCHS = 3
BATCH = 16
LR = 1e-5

def main():
    wandb.init(project="llama-1b")
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    tokenizer.pad_token = tokenizer.eos_token
    model = AutoModelForCausalLM.from_pretrained(MODEL).cuda()
    train = ChatDataset("data/chat.jsonl", tokenizer)
    loader = DataLoader(train, batch_size=BATCH, shuffle=True, collate_fn=collate)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR)
    scheduler = get_cosine_schedule_with_warmup(optimizer, 100, EPOCHS * len(loader))

    model.train()
    step = 0
    for epoch in range(EPOCHS):
        start = time.time()
        tokens = 0
        for batch in loader:
            batch = {k: v.cuda() for k, v in batch.items()}
            out = model(**batch)
            out.loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            tokens += batch["input_ids"].numel()
            step += 1
            wandb.log({"loss": out.loss.item(), "lr": scheduler.get_last_lr()[0],
                       "tokens_per_s": tokens / (time.time() - start)})
        torch.save(model.state_dict(), f"ckpt_{epoch}.pt")

if __name__ == "__main__":
    main()

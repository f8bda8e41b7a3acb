import os
import time

import torch
from datasets import load_dataset
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq, get_linear_schedule_with_warmup, set_seed

CFG = {
    "model": "Qwen/Qwen2.5-0.5B",
    "data": os.environ.get("TRAIN_FILE", "data/recipes.jsonl"),
    "out": os.environ.get("OUT_DIR", "out"),
    "batch_size": 16,
    "accum": 2,
    "epochs": 3,
    "lr": 2e-5,
    "max_len": 768,
    "log_every": 50,
    "seed": 99,
}


def encode_with(tokenizer):
    def encode(row):
        prompt = tokenizer(f"Recipe for {row['title']}:\n")["input_ids"]
        body = tokenizer(row["body"])["input_ids"] + [tokenizer.eos_token_id]
        ids = (prompt + body)[: CFG["max_len"]]
        labels = ([-100] * len(prompt) + body)[: CFG["max_len"]]
        return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": labels}

    return encode


def main():
    set_seed(CFG["seed"])
    device = torch.device("cuda")
    tokenizer = AutoTokenizer.from_pretrained(CFG["model"])
    data = load_dataset("json", data_files=CFG["data"], split="train")
    data = data.map(encode_with(tokenizer), remove_columns=data.column_names)
    loader = DataLoader(
        data,
        batch_size=CFG["batch_size"],
        shuffle=True,
        drop_last=True,
        collate_fn=DataCollatorForSeq2Seq(tokenizer, label_pad_token_id=-100),
        num_workers=4,
        persistent_workers=True,
        pin_memory=True,
    )

    model = AutoModelForCausalLM.from_pretrained(CFG["model"], attn_implementation="sdpa").to(device)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=CFG["lr"], fused=True)
    updates = len(loader) // CFG["accum"] * CFG["epochs"]
    scheduler = get_linear_schedule_with_warmup(optimizer, int(0.05 * updates), updates)

    state_path = os.path.join(CFG["out"], "state.pt")
    os.makedirs(CFG["out"], exist_ok=True)
    first_epoch, update = 0, 0
    if os.path.exists(state_path):
        state = torch.load(state_path, map_location="cpu", weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        scheduler.load_state_dict(state["scheduler"])
        first_epoch, update = state["epoch"], state["update"]

    loss_sum = torch.zeros((), device=device)
    real_tokens = torch.zeros((), device=device, dtype=torch.long)
    window = 0
    clock = None
    for epoch in range(first_epoch, CFG["epochs"]):
        set_seed(CFG["seed"] + epoch)
        for step, batch in enumerate(loader):
            if step >= len(loader) // CFG["accum"] * CFG["accum"]:
                break
            batch = {k: v.to(device, non_blocking=True) for k, v in batch.items()}
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(**batch).loss / CFG["accum"]
            loss.backward()
            loss_sum += loss.detach()
            real_tokens += batch["attention_mask"].sum()
            if (step + 1) % CFG["accum"]:
                continue
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad(set_to_none=True)
            update += 1
            window += 1
            if update % CFG["log_every"] == 0:
                mean_loss, tokens = loss_sum.item() / window, real_tokens.item()
                now = time.perf_counter()
                rate = "" if clock is None else f" {tokens / (now - clock):.0f} tokens/s"
                print(f"epoch {epoch} update {update} loss {mean_loss:.4f}{rate}", flush=True)
                loss_sum.zero_()
                real_tokens.zero_()
                window = 0
                clock = now
        torch.save(
            {
                "model": model.state_dict(),
                "optimizer": optimizer.state_dict(),
                "scheduler": scheduler.state_dict(),
                "epoch": epoch + 1,
                "update": update,
            },
            state_path,
        )
        window = 0
        clock = None
        loss_sum.zero_()
        real_tokens.zero_()

    model.save_pretrained(os.path.join(CFG["out"], "final"))
    tokenizer.save_pretrained(os.path.join(CFG["out"], "final"))


if __name__ == "__main__":
    main()

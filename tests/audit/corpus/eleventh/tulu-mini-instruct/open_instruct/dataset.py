"""Chat formatting and tokenization (Tulu style)."""
import torch


def concat_messages(messages, tokenizer):
    text = tokenizer.bos_token
    for message in messages:
        if message["role"] == "system":
            text += "<|system|>\n" + message["content"].strip() + "\n"
        elif message["role"] == "user":
            text += "<|user|>\n" + message["content"].strip() + "\n"
        elif message["role"] == "assistant":
            text += "<|assistant|>\n" + message["content"].strip() + tokenizer.eos_token + "\n"
        else:
            raise ValueError(f"Invalid role: {message['role']}")
    return text


def encode_example(example, tokenizer, max_seq_length):
    messages = example["messages"]
    text = concat_messages(messages, tokenizer)
    enc = tokenizer(text, return_tensors="pt", max_length=max_seq_length, truncation=True)
    input_ids = enc.input_ids
    labels = input_ids.clone()

    def length_of(msgs, suffix=""):
        ids = tokenizer(
            concat_messages(msgs, tokenizer) + suffix,
            return_tensors="pt",
            max_length=max_seq_length,
            truncation=True,
        ).input_ids
        return ids.shape[1]

    # only the assistant's messages are trained on
    for i, message in enumerate(messages):
        if message["role"] == "assistant":
            continue
        start = 0 if i == 0 else length_of(messages[:i])
        next_is_assistant = i + 1 < len(messages) and messages[i + 1]["role"] == "assistant"
        end = length_of(messages[: i + 1], "<|assistant|>\n" if next_is_assistant else "")
        labels[:, start:end] = -100
        if end >= max_seq_length:
            break

    return {
        "input_ids": input_ids.flatten(),
        "labels": labels.flatten(),
        "attention_mask": torch.ones_like(input_ids).flatten(),
    }

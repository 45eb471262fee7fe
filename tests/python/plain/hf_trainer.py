# SPDX-License-Identifier: Apache-2.0
"""A plain script of HuggingFace's Trainer: a tiny GPT-2 whose texts differ in length, evaluated after every epoch,
gradients of several batches to a step, checkpoints of which two are kept, and a second Trainer that goes on where the
first was stopped in the middle of an epoch. Arguments: batch size, batches to a step, texts, float64 or float32, and
"stop" to end with the first, "go on" to begin with the second."""

import json
import os
import sys

os.environ["HF_HUB_OFFLINE"] = "1"

import torch  # noqa: E402
from transformers import (GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments,  # noqa: E402
                          set_seed)

BATCH, PASSES, TEXTS, KIND = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
PART = sys.argv[5] if len(sys.argv) > 5 else "both"
STOP_AFTER, EPOCHS, LONGEST = 2, 3, 10


class Texts(torch.utils.data.Dataset):
    """Words that follow a rule, in texts of 3 to 10 words."""

    def __init__(self, count, seed):
        generator = torch.Generator().manual_seed(seed)
        first = torch.randint(0, 16, (count, 1), generator=generator)
        self.words = (first + torch.arange(LONGEST) * 3) % 16
        self.lengths = torch.randint(3, LONGEST + 1, (count,), generator=generator)

    def __len__(self):
        return len(self.words)

    def __getitem__(self, number):
        beyond = torch.arange(LONGEST) >= self.lengths[number]
        return {"input_ids": self.words[number], "labels": self.words[number].masked_fill(beyond, -100),
                "attention_mask": (~beyond).long()}


class StopsEarly(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        control.should_training_stop |= state.global_step == STOP_AFTER


def main():
    torch.set_num_threads(1)
    set_seed(5)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=16, n_positions=16, n_embd=16, n_layer=1, n_head=2, bos_token_id=0,
                                       eos_token_id=0, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, use_cache=False))
    model = model.double() if KIND == "float64" else model
    arguments = TrainingArguments(
        output_dir="checkpoints", num_train_epochs=EPOCHS, per_device_train_batch_size=BATCH,
        per_device_eval_batch_size=16, gradient_accumulation_steps=PASSES, eval_strategy="epoch",
        save_strategy="steps", save_steps=1, save_total_limit=2, learning_rate=5e-3, logging_steps=1, report_to=[],
        use_cpu=True, disable_tqdm=False, seed=5, lr_scheduler_type="cosine", warmup_steps=2)
    training, tests = Texts(TEXTS, 1), Texts(40, 2)
    if PART != "go on":
        first = Trainer(model=model, args=arguments, train_dataset=training, eval_dataset=tests, callbacks=[StopsEarly()])
        first.train()
        assert first.state.global_step == STOP_AFTER
    if PART == "stop":
        return
    fresh = GPT2LMHeadModel(model.config)
    fresh = (fresh.double() if KIND == "float64" else fresh).eval()  # as a model that was loaded is
    second = Trainer(model=fresh, args=arguments, train_dataset=training, eval_dataset=tests)
    second.train(resume_from_checkpoint=True)
    history = second.state.log_history
    print("NOISE", json.dumps(torch.rand(3).tolist()))
    print("STEPS", second.state.global_step)
    print("TESTED", json.dumps([entry["eval_loss"] for entry in history if "eval_loss" in entry]))
    print("RATES", json.dumps([entry["learning_rate"] for entry in history if "learning_rate" in entry]))
    print("NORMS", json.dumps([entry["grad_norm"] for entry in history if "grad_norm" in entry]))
    print("VALUES", json.dumps([value for parameter in fresh.parameters() for value in parameter.flatten().tolist()]))


if __name__ == "__main__":
    main()

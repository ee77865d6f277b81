"""Answers of Hugging Face transformers for the tests: makes models with random weights, and writes logits, gradients, losses of
training steps and generated tokens beside them. Reads a JSON list of requests, writes one safetensors file per request."""

import copy
import dataclasses
import json
import sys

import torch
import transformers
from safetensors.torch import load_file, save_file

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()


def tensors(batch):
    made = {}
    for name, value in batch.items():
        dtype = torch.float32 if name == "pixel_values" else torch.long
        made[name] = torch.tensor(value, dtype=dtype)
    return made


def build(request):
    config = dict(request["config"])
    kind = config.pop("model_type")
    config = transformers.AutoConfig.for_model(kind, **config)
    config._attn_implementation = "eager"
    torch.manual_seed(request.get("seed", 0))
    model = getattr(transformers, request["class"])(config).eval()
    # Biases and gains start at 0 and 1, which would hide mistakes.
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * request.get("noise", 0.05))
    if "dtype" in request:
        model = model.to(getattr(torch, request["dtype"]))
    model.save_pretrained(request["dir"], max_shard_size=request.get("shard", "5GB"))
    if request.get("raw"):
        # The configuration as it was given, not as transformers normalizes it.
        with open(request["dir"] + "/config.json", "w") as file:
            json.dump({"architectures": [request["class"]], **request["config"]}, file)
    return model


def keys(request):
    """Names of the fields of a configuration class."""
    made = type(transformers.AutoConfig.for_model(request["keys"]))
    names = "\n".join(sorted(field.name for field in dataclasses.fields(made)))
    save_file({"keys": torch.tensor(list(names.encode()), dtype=torch.uint8)}, request["answer"])


def gradients(model, folder):
    """Gradients by the names of checkpoints, which may differ from those in memory: a copy of the model is saved."""
    copied = copy.deepcopy(model)
    with torch.no_grad():
        for parameter, own in zip(copied.parameters(), model.parameters()):
            parameter.copy_(torch.zeros_like(own) if own.grad is None else own.grad)
    copied.save_pretrained(folder)
    return {"grad." + name: value for name, value in load_file(folder + "/model.safetensors").items()}


def tokenize(request):
    """Ids of texts, and the text of a conversation, by transformers itself."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(request["dir"])
    rows = [tokenizer(text)["input_ids"] for text in request["texts"]]
    if "chat" in request:
        chat = tokenizer.apply_chat_template(request["chat"], tokenize=False, add_generation_prompt=True)
        rows.append(tokenizer(chat)["input_ids"])
    for first, second in request.get("pairs", []):
        rows.append(tokenizer(first, second or None, truncation=True, max_length=request["maxLength"])["input_ids"])
    rows.extend(list(tokenizer.decode(row, skip_special_tokens=True).encode()) for row in rows[: len(request["texts"])])
    save_file({f"ids.{i}": torch.tensor(row, dtype=torch.int32) for i, row in enumerate(rows)}, request["answer"])


def answer(request):
    if "texts" in request:
        return tokenize(request)
    if "keys" in request:
        return keys(request)
    if request.get("load"):
        model = getattr(transformers, request["class"]).from_pretrained(request["dir"], attn_implementation="eager").eval()
    else:
        model = build(request)
    out = {}
    if "batch" in request:
        batch = tensors(request["batch"])
        result = model(**batch)
        out["hidden" if "logits" not in result else "logits"] = (
            result["last_hidden_state"] if "logits" not in result else result["logits"]
        ).detach().float()
        if result.get("pooler_output") is not None:
            out["pooled"] = result["pooler_output"].detach().float()
        if result.get("loss") is not None:
            out["loss"] = result["loss"].detach().reshape(1)
            result["loss"].backward()
            out.update(gradients(model, request["dir"] + ".gradients"))
            model.zero_grad()
        steps = request.get("steps", 0)
        if steps > 0:
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
            losses = []
            for _ in range(steps):
                loss = model(**batch)["loss"]
                losses.append(loss.detach())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            losses.append(model(**batch)["loss"].detach())
            out["losses"] = torch.stack(losses)
    for i, case in enumerate(request.get("generate", [])):
        case = dict(case)
        ids = torch.tensor(case.pop("input_ids"))
        mask = torch.tensor(case.pop("attention_mask")) if "attention_mask" in case else torch.ones_like(ids)
        settings = transformers.GenerationConfig(do_sample=False, pad_token_id=0, **case)
        with torch.no_grad():
            made = model.generate(ids, attention_mask=mask, generation_config=settings)
        out[f"generated.{i}"] = made[:, ids.shape[1]:].to(torch.int32).contiguous()
    if request.get("state"):
        for name, parameter in model.state_dict().items():
            out["state." + name] = parameter.detach().clone()
    save_file({name: value.contiguous() for name, value in out.items()}, request["answer"])


for each in json.load(sys.stdin):
    try:
        answer(each)
    except Exception as error:
        if not each.get("mayFail"):
            raise
        save_file({"failed": torch.tensor(list(str(error).encode()) or [0], dtype=torch.uint8)}, each["answer"])

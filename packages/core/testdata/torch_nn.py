"""What PyTorch computes with given weights: results, gradients and optimizer steps. Reads a list of requests as JSON
from standard input, answers with a list of dictionaries of tensors. Called by the tests of nn/ and optim/."""
import json
import math
import sys

import torch
from torch import nn

torch.set_num_threads(1)


def read(t):
    dtype = getattr(torch, t["dtype"])
    return torch.tensor(t["data"], dtype=dtype).reshape(t["shape"])


def write(t):
    t = t.detach()
    return {"shape": list(t.shape), "data": t.to(torch.float64).reshape(-1).tolist()}


class TextClassifier(nn.Module):
    """The model of the data-parallel training study."""

    def __init__(self, o):
        super().__init__()
        self.embedding = nn.Embedding(o["vocabulary"], o["width"])
        layer = nn.TransformerEncoderLayer(
            o["width"], o["heads"], o["feedForward"], dropout=0.0, batch_first=True,
            activation=o.get("activation", "relu"), norm_first=o.get("norm") == "pre")
        norm = nn.LayerNorm(o["width"]) if o.get("finalNorm") else None
        self.encoder = nn.TransformerEncoder(layer, o["layers"], norm=norm, enable_nested_tensor=False)
        if o.get("positions") == "learned":
            self.positions = nn.Embedding(o["maxLength"], o["width"])
        self.classifier = nn.Linear(o["width"], o["classes"])

    def forward(self, ids, padding=None):
        length, width = ids.shape[1], self.embedding.weight.shape[1]
        if hasattr(self, "positions"):
            return self.encode(self.embedding(ids) + self.positions.weight[:length], padding)
        where = torch.arange(length, dtype=torch.float64).unsqueeze(1)
        rate = torch.exp(torch.arange(0, width, 2, dtype=torch.float64) * (-math.log(10000.0) / width))
        table = torch.zeros(length, width, dtype=torch.float64)
        table[:, 0::2] = torch.sin(where * rate)
        table[:, 1::2] = torch.cos(where * rate)
        return self.encode(self.embedding(ids) + table.to(self.embedding.weight.dtype), padding)

    def encode(self, x, padding):
        if padding is None:
            return self.classifier(self.encoder(x).mean(dim=1))
        real = (~padding).unsqueeze(-1).to(x.dtype)
        encoded = self.encoder(x, src_key_padding_mask=padding)
        return self.classifier((encoded * real).sum(dim=1) / real.sum(dim=1))


def attention(o):
    return nn.MultiheadAttention(o["width"], o["heads"], batch_first=True)


def attend(module, o, inputs):
    x = inputs["x"]
    memory = inputs.get("memory", x)
    mask = inputs.get("mask")
    if mask is not None and mask.dtype == torch.bool:
        mask = ~mask  # PyTorch: true is closed
    return module(x, memory, memory, attn_mask=mask, need_weights=False)[0]


def recur(module, inputs):
    state = tuple(inputs[k].unsqueeze(0) for k in ("hidden", "cell") if k in inputs)
    out, last = module(inputs["x"], None if len(state) == 0 else state if len(state) == 2 else state[0])
    last = last if isinstance(last, tuple) else (last,)
    return torch.cat([out] + [s.transpose(0, 1) for s in last], dim=1)


modules = {
    "linear": (lambda o: nn.Linear(o["in"], o["out"]), lambda m, o, i: m(i["x"])),
    "embedding": (lambda o: nn.Embedding(o["vocabulary"], o["width"]), lambda m, o, i: m(i["ids"])),
    "layerNorm": (lambda o: nn.LayerNorm(o["width"]), lambda m, o, i: m(i["x"])),
    "attention": (attention, attend),
    "encoderLayer": (
        lambda o: nn.TransformerEncoderLayer(
            o["width"], o["heads"], o["feedForward"], dropout=0.0, batch_first=True,
            activation=o["activation"], norm_first=o["norm"] == "pre"),
        lambda m, o, i: m(i["x"])),
    "lstm": (lambda o: nn.LSTM(o["in"], o["out"], bias=o.get("bias", True), batch_first=True), lambda m, o, i: recur(m, i)),
    "gru": (lambda o: nn.GRU(o["in"], o["out"], batch_first=True), lambda m, o, i: recur(m, i)),
    "textClassifier": (TextClassifier, lambda m, o, i: m(i["ids"])),
}


def build(request):
    make, _ = modules[request["kind"]]
    module = make(request["options"])
    weights = {name: read(t) for name, t in request["params"].items()}
    module.to(next(iter(weights.values())).dtype)
    module.load_state_dict(weights)
    return module


def differentiate(request):
    """Result and gradients of sum(result * cotangent)."""
    module = build(request)
    inputs = {name: read(t) for name, t in request["inputs"].items()}
    for t in inputs.values():
        if t.is_floating_point():
            t.requires_grad_(True)
    out = modules[request["kind"]][1](module, request["options"], inputs)
    (out * read(request["cotangent"])).sum().backward()
    answer = {"out": write(out)}
    answer.update({f"params.{name}": write(p.grad) for name, p in module.named_parameters()})
    answer.update({f"inputs.{name}": write(t.grad) for name, t in inputs.items() if t.grad is not None})
    return answer


optimizers = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamW": torch.optim.AdamW,
              "rmsprop": torch.optim.RMSprop, "adagrad": torch.optim.Adagrad, "adadelta": torch.optim.Adadelta,
              "adamax": torch.optim.Adamax, "nadam": torch.optim.NAdam, "radam": torch.optim.RAdam}


def train(request):
    """Loss, gradients and parameters of one optimizer step of a classifier."""
    module = build(request)
    optimizer = optimizers[request["optimizer"]](module.parameters(), **request["settings"])
    loss = nn.functional.cross_entropy(module(read(request["ids"])), read(request["labels"]).long())
    loss.backward()
    answer = {"loss": write(loss)}
    answer.update({f"grads.{name}": write(p.grad) for name, p in module.named_parameters()})
    optimizer.step()
    answer.update({f"params.{name}": write(p) for name, p in module.named_parameters()})
    return answer


def pretrained(request):
    """A model of PyTorch's own: its state dict, logits, loss, and its parameters after one clipped optimizer step."""
    torch.manual_seed(request["seed"])
    module = TextClassifier(request["options"]).to(getattr(torch, request["dtype"]))
    with torch.no_grad():
        for p in module.parameters():
            p.add_(0.1 * torch.randn_like(p))
    state = {f"state.{name}": write(p) for name, p in module.state_dict().items()}
    ids, lengths = read(request["ids"]), read(request["lengths"])
    padding = torch.arange(ids.shape[1]).unsqueeze(0) >= lengths.unsqueeze(1)
    optimizer = optimizers[request["optimizer"]](module.parameters(), **request["settings"])
    logits = module(ids, padding)
    loss = nn.functional.cross_entropy(logits, read(request["labels"]).long())
    loss.backward()
    norm = nn.utils.clip_grad_norm_(module.parameters(), request["clip"])
    optimizer.step()
    after = {f"after.{name}": write(p) for name, p in module.state_dict().items()}
    return {**state, **after, "logits": write(logits), "loss": write(loss), "norm": write(norm)}


def optimize(request):
    """A parameter after each of several gradients."""
    p = read(request["param"]).requires_grad_(True)
    optimizer = optimizers[request["optimizer"]]([p], **request["settings"])
    answer = {}
    for i, g in enumerate(request["grads"]):
        p.grad = read(g)
        optimizer.step()
        answer[str(i)] = write(p)
    return answer


def schedule(request):
    """The learning rate of each step."""
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=request["rate"])
    plan = getattr(torch.optim.lr_scheduler, request["kind"])(optimizer, **request["settings"])
    rates = []
    for _ in range(request["steps"]):
        rates.append(plan.get_last_lr()[0])
        optimizer.step()
        plan.step()
    return {"rates": write(torch.tensor(rates, dtype=torch.float64))}


def clip(request):
    grads = [read(g) for g in request["grads"]]
    holders = [torch.zeros_like(g).requires_grad_(True) for g in grads]
    for h, g in zip(holders, grads):
        h.grad = g
    norm = nn.utils.clip_grad_norm_(holders, request["limit"])
    answer = {str(i): write(h.grad) for i, h in enumerate(holders)}
    return {**answer, "norm": write(norm)}


def initialize(request):
    """Standard deviation and largest size of every fresh parameter."""
    torch.manual_seed(0)
    module = modules[request["kind"]][0](request["options"])
    return {name: write(torch.stack([p.std(correction=0), p.abs().max()])) for name, p in module.named_parameters()}


tasks = {"differentiate": differentiate, "train": train, "pretrained": pretrained, "optimize": optimize, "schedule": schedule, "clip": clip, "initialize": initialize}
json.dump([tasks[r["task"]](r) for r in json.load(sys.stdin)], sys.stdout)

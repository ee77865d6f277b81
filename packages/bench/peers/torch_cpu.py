"""PyTorch as a peer of the CPU suite. Inputs and parameters come from the hash of src/suites/inputs.ts."""
import math
import os
import re

import torch
from torch import nn
from torch.nn import functional as F

from hashed import integers, uniform
from peer import serve

torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))


def sampled(t):
    flat = torch.view_as_real(t).reshape(-1) if t.is_complex() else t.reshape(-1)
    return flat[integers(200, 999, flat.numel())].tolist()


def single(fn, *inputs):
    with torch.no_grad():
        check = sampled(fn(*inputs))

    def call():
        with torch.no_grad():
            fn(*inputs)

    return {"call": call, "check": check}


def training(model, inputs, labels, **settings):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, **settings)

    def call():
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
        return loss

    return {"check": [call().item() for _ in range(5)], "call": call}


def mlp(**settings):
    sizes = [784, 512, 512, 10]
    layers = []
    for i, out in enumerate(sizes[1:]):
        layer = nn.Linear(sizes[i], out)
        bound = 1 / math.sqrt(sizes[i])
        layer.weight.data = uniform(out * sizes[i], 10 + 2 * i, -bound, bound).reshape(out, sizes[i])
        layer.bias.data = uniform(out, 11 + 2 * i, -bound, bound)
        layers += [layer, nn.ReLU()]
    x = uniform(256 * 784, 1, 0.0, 1.0).reshape(256, 784)
    return training(nn.Sequential(*layers[:-1]), x, integers(256, 2, 10), **settings)


class TextClassifier(nn.Module):
    def __init__(self, vocabulary=20000, width=128, heads=4, layers=2, feed_forward=256, classes=4, length=128):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        layer = nn.TransformerEncoderLayer(width, heads, feed_forward, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.classifier = nn.Linear(width, classes)
        where = torch.arange(length, dtype=torch.float64).unsqueeze(1)
        rate = torch.exp(torch.arange(0, width, 2, dtype=torch.float64) * (-math.log(10000.0) / width))
        table = torch.stack([torch.sin(where * rate), torch.cos(where * rate)], dim=-1)
        self.register_buffer("positions", table.reshape(length, width).float(), persistent=False)
        for i, (name, p) in enumerate(sorted(self.named_parameters())):
            p.data = self.start(name, p.shape, i)

    @staticmethod
    def start(name, shape, index):
        if re.search(r"norm\d\.weight$", name):
            return torch.ones(shape)
        if re.search(r"norm\d\.bias$", name):
            return torch.zeros(shape)
        bound = math.sqrt(3) if name == "embedding.weight" else 1 / math.sqrt(shape[-1])
        return uniform(math.prod(shape), 100 + index, -bound, bound).reshape(shape)

    def forward(self, ids):
        return self.classifier(self.encoder(self.embedding(ids) + self.positions).mean(dim=1))


def transformer(**settings):
    return training(TextClassifier(), integers(32 * 128, 3, 20000).reshape(32, 128), integers(32, 4, 4), **settings)


def complex_matmul():
    make = lambda salt: torch.view_as_complex(uniform(2 * 4096 * 64, salt).reshape(4096, 8, 8, 2))
    return single(torch.matmul, make(8), make(9))


def row_input():
    return uniform(4096 * 1024, 5, -4.0, 4.0).reshape(4096, 1024)


rows = {
    "softmax": lambda: single(lambda x: F.softmax(x, dim=-1), row_input()),
    "layer-norm": lambda: single(
        lambda x, w, b: F.layer_norm(x, (1024,), w, b),
        row_input(), uniform(1024, 6, 0.5, 1.5), uniform(1024, 7, 0.0, 1.0)),
    "mlp": mlp,
    "mlp-fused": lambda: mlp(fused=True),
    "transformer": transformer,
    "transformer-fused": lambda: transformer(fused=True),
    "complex-matmul": complex_matmul,
}

serve(lambda row: rows[row](), {"torch": torch.__version__, "threads": torch.get_num_threads()})

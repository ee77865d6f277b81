"""The training step of the benchmark in PyTorch: eager on one process, DistributedDataParallel over gloo on several. Reads the
texts that Weft reads, hashes them as Weft does, and prints the seconds of each step as one JSON line."""
import json
import math
import os
import sys
import time

import torch
from torch import nn

options = json.loads(sys.argv[1])
rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
torch.set_num_threads(1)
torch.manual_seed(0)


def encode(text, vocabulary):
    out = []
    for word in text.lower().split():
        h = 2166136261
        for c in word:
            h = ((h ^ ord(c)) * 16777619) & 0xFFFFFFFF
        out.append(1 + h % (vocabulary - 1))
    return out


class Classifier(nn.Module):
    def __init__(self, m):
        super().__init__()
        self.embedding = nn.Embedding(m["vocab_size"], m["d_model"])
        layer = nn.TransformerEncoderLayer(m["d_model"], m["n_heads"], m["dim_feedforward"], dropout=m["dropout"], batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, m["num_layers"], enable_nested_tensor=False)
        self.dropout = nn.Dropout(m["dropout"])
        self.classifier = nn.Linear(m["d_model"], 2)
        width, length = m["d_model"], m["max_seq_len"]
        where = torch.arange(length).unsqueeze(1)
        rate = torch.exp(torch.arange(0, width, 2) * (-math.log(10000.0) / width))
        table = torch.zeros(length, width)
        table[:, 0::2], table[:, 1::2] = torch.sin(where * rate), torch.cos(where * rate)
        self.register_buffer("positions", table)

    def forward(self, ids, padding):
        real = (~padding).unsqueeze(-1).float()
        x = self.encoder(self.embedding(ids) + self.positions[: ids.shape[1]], src_key_padding_mask=padding)
        return self.classifier(self.dropout((x * real).sum(1) / real.sum(1)))


m, batch = options["model"], options["batch"]
rows = [json.loads(line) for line in open(options["data"])]
ids = torch.zeros(len(rows), m["max_seq_len"], dtype=torch.long)
for i, row in enumerate(rows):
    tokens = encode(row["text"], m["vocab_size"])[: m["max_seq_len"]]
    ids[i, : len(tokens)] = torch.tensor(tokens)
labels = torch.tensor([row["label"] for row in rows])
model = Classifier(m)
if world > 1:
    torch.distributed.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(model, static_graph=True)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
times, losses = [], []
for step in range(options["steps"]):
    start = time.perf_counter()
    at = ((step * world + rank) * batch) % (len(rows) - batch)
    x, y = ids[at : at + batch], labels[at : at + batch]
    optimizer.zero_grad(set_to_none=True)
    loss = nn.functional.cross_entropy(model(x, x == 0), y)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    losses.append(loss.item())
    times.append(time.perf_counter() - start)
if rank == 0:
    print(json.dumps({"seconds": times, "losses": losses, "torch": torch.__version__}))
if world > 1:
    torch.distributed.destroy_process_group()

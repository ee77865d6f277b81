# Answers of PyTorch to the calls of src/test/torch-calls.ts, which come as JSON: results in float64, and gradients of their sum
# weighted by cosines. Prints one list per call: [shape, numbers] of every result and gradient, or a message.
import json
import sys
import warnings

import torch
import torch.nn.functional as F

warnings.simplefilter("ignore")
torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)
dtypes = {"float64": torch.float64, "int32": torch.int64, "bool": torch.bool}


def parts(z):
    return torch.view_as_real(z.resolve_conj())


def show(x):
    return [list(x.shape), x.detach().double().reshape(-1).tolist()]


def weighted(x):
    return (x * torch.cos(torch.arange(x.numel(), dtype=torch.float64)).reshape(x.shape)).sum()


def plus(x, n):
    """A positive definite matrix."""
    return x @ x.mT + n * torch.eye(x.shape[-1])


def answer(call):
    operands = [
        torch.tensor(x["data"], dtype=torch.float64).reshape(x["shape"]).to(dtypes[x["dtype"]]) for x in call["inputs"]
    ]
    for i in call["grads"]:
        operands[i].requires_grad_()
    names = dict(zip("abcde", operands))
    got = eval(call["torch"], {"torch": torch, "F": F, "parts": parts, "plus": plus, **names})
    results = list(got) if isinstance(got, (tuple, list)) else [got]
    if call["grads"]:
        sum(weighted(r) for r in results if r.dtype == torch.float64).backward()
    gradients = [operands[i].grad for i in call["grads"]]
    return [show(r) for r in results] + [
        show(torch.zeros_like(operands[i]) if g is None else g) for i, g in zip(call["grads"], gradients)
    ]


out = []
for call in json.load(sys.stdin):
    try:
        out.append(answer(call))
    except Exception as error:  # noqa: BLE001
        out.append(str(error))
json.dump(out, sys.stdout)

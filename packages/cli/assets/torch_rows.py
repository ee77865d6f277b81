"""The rows of `weft bench` in PyTorch: reads {"rows", "device", "warmup", "repeats", "threads"} from standard input, writes one JSON line a row."""
import json, sys, time

job = json.load(sys.stdin)
import torch

device = "cuda" if job["device"].startswith("cuda") else "cpu"
if device == "cuda":
    torch.backends.cuda.matmul.allow_tf32 = job["precision"] == "tf32"
else:
    torch.set_num_threads(job["threads"])


def wait():
    if device == "cuda":
        torch.cuda.synchronize()


def timed(call):
    times = []
    for i in range(-job["warmup"], job["repeats"]):
        wait()
        start = time.perf_counter()
        call()
        wait()
        if i >= 0:
            times.append(time.perf_counter() - start)
    return times


def program(row):
    if row["kind"] == "product":
        create = lambda: (torch.randn(row["m"], row["k"], device=device), torch.randn(row["k"], row["n"], device=device))
        return create, lambda a, b: a @ b
    if row["kind"] == "mlp":
        dims = row["dims"]
        weights = [torch.randn(i, o, device=device) / i**0.5 for i, o in zip(dims, dims[1:])]

        def forward(x):
            for w in weights:
                x = torch.relu(x @ w)
            return x

        return lambda: (torch.randn(row["batch"], dims[0], device=device),), forward
    return lambda: (torch.randn(row["rows"], row["columns"], device=device),), lambda x: torch.relu(x) * 2


with torch.no_grad():
    for row in job["rows"]:
        create, compute = program(row)
        inputs = create()
        resident = timed(lambda: compute(*inputs))
        whole = timed(lambda: compute(*create()).cpu())
        print(json.dumps({"compute": resident, "endToEnd": whole, "torch": torch.__version__}), flush=True)

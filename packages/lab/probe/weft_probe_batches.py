"""What a batch of a PyTorch loader holds: its size, its first values, and indices into the data set behind subsets."""

import sys
import zlib

_hashed_bytes = 2048  # of each tensor


def size_of(batch):
    """Samples in a batch: the first dimension of the first tensor in it."""
    if type(batch) is list or type(batch) is tuple:
        # The usual form, without a search.
        try:
            return batch[0].size(0)
        except (AttributeError, IndexError, TypeError):
            pass
    for _ in range(4):
        if hasattr(batch, "shape"):
            return int(batch.shape[0]) if len(batch.shape) > 0 else None
        if isinstance(batch, dict):
            batch = next(iter(batch.values()), None)
        elif isinstance(batch, (list, tuple)):
            if not batch:
                return None
            batch = batch[0]
        else:
            return None
    return None


def samples_before(iterator, size):
    """Samples in the batches before one of an epoch, as a function of its number: known without a look at them where a loader cuts
    a sampler of known length into batches, of which one has this size. Else None."""
    loader = getattr(iterator, "_weft_loader", None)
    batches, whole = getattr(loader, "batch_sampler", None), length_of(getattr(loader, "sampler", None))
    if type(batches).__name__ != "BatchSampler" or whole is None or size != getattr(loader, "batch_size", None):
        return None
    return lambda number: min(number * size, whole)


def _tensors(batch, depth=4):
    """The tensors of a batch, in order."""
    if hasattr(batch, "untyped_storage") or hasattr(batch, "storage"):
        yield batch
    elif depth and isinstance(batch, (dict, list, tuple)):
        for part in list(batch.values() if isinstance(batch, dict) else batch)[:16]:
            yield from _tensors(part, depth - 1)


def first_values(batch):
    """First values of the first tensor that tells samples apart: constant ones (masks, synthetic zeros) do not. None without."""
    torch = sys.modules["torch"]
    for tensor in _tensors(batch):
        if tensor.device.type != "cpu":
            return None
        flat = tensor.detach().reshape(-1)[: _hashed_bytes // max(1, tensor.element_size())]
        if flat.is_complex():
            flat = torch.view_as_real(flat).reshape(-1)
        # Not through NumPy, which may not be installed.
        values = flat.tolist()
        if any(value != values[0] for value in values):
            return values
    return None


def identity_of(dataset):
    """Hash of what a data set holds, without asking it for a sample, which may draw random numbers; None where it shows nothing."""
    if getattr(dataset, "_fingerprint", None):
        return str(dataset._fingerprint)
    for name in ("tensors", "samples", "imgs", "files", "paths", "data"):
        held = getattr(dataset, name, None)
        try:
            if hasattr(held, "storage"):
                held = [held]
            if isinstance(held, (list, tuple)) and len(held) > 0:
                if not hasattr(held[0], "storage"):
                    return "%08x" % zlib.crc32(repr([held[0], held[-1], len(held)]).encode())
                values = first_values(list(held))
                if values is not None:
                    return "%08x" % zlib.crc32(repr(values).encode())
        except Exception:  # noqa: BLE001 - what cannot be read shows nothing
            pass
    return None


def base_data(dataset):
    """The data set behind subsets."""
    for _ in range(16):
        if dataset is None or not hasattr(dataset, "indices") or not hasattr(dataset, "dataset"):
            return dataset
        dataset = dataset.dataset
    return dataset


def whole_indices(dataset, index):
    """Indices into the data set behind subsets: two ranks may have the same indices into different parts."""
    found = list(index)
    for _ in range(16):
        if dataset is None or not hasattr(dataset, "indices") or not hasattr(dataset, "dataset"):
            return found
        found = [int(dataset.indices[i]) for i in found]
        dataset = dataset.dataset
    return found


def length_of(thing):
    """Length of a data set, sampler or loader; None where it has none, as iterable data sets."""
    try:
        return len(thing)
    except Exception:  # noqa: BLE001
        return None

"""Records which keys of a YAML configuration the program reads. yaml returns dictionaries that record their key accesses
and otherwise behave like plain ones: they pickle, copy and dump as such."""

import os

import weft_probe as probe
from weft_probe import guarded

_files = {}


class _File:
    def __init__(self, name):
        self.name = name
        self.keys = []
        self.read = set()

    def note(self, key):
        if key not in self.read:
            self.read.add(key)
            _tell()


def _tell():
    probe.recorder.fact(
        configs=[{"file": f.name, "keys": f.keys, "read": sorted(f.read)} for f in _files.values()],
    )


class NotingDict(dict):
    __slots__ = ("_weft_file", "_weft_path")

    def _weft_note(self, key):
        try:
            path = self._weft_path + (str(key),)
            if not isinstance(dict.get(self, key), dict):
                self._weft_file.note(".".join(path))
        except Exception:  # noqa: BLE001 - for example a copy without the added fields
            pass

    def __getitem__(self, key):
        value = dict.__getitem__(self, key)
        self._weft_note(key)
        return value

    def get(self, key, default=None):
        if dict.__contains__(self, key):
            self._weft_note(key)
        return dict.get(self, key, default)

    def pop(self, key, *default):
        if dict.__contains__(self, key):
            self._weft_note(key)
        return dict.pop(self, key, *default)

    def setdefault(self, key, default=None):
        if dict.__contains__(self, key):
            self._weft_note(key)
        return dict.setdefault(self, key, default)

    # Iterating over a dictionary reads all of its keys; `**config` does so, too.
    def _weft_note_all(self):
        for key in dict.keys(self):
            self._weft_note(key)

    def __iter__(self):
        self._weft_note_all()
        return dict.__iter__(self)

    def items(self):
        self._weft_note_all()
        return dict.items(self)

    def values(self):
        self._weft_note_all()
        return dict.values(self)

    def __reduce__(self):
        return (dict, (dict(dict.items(self)),))

    def __copy__(self):
        return dict(dict.items(self))

    def __deepcopy__(self, memo):
        import copy

        return {key: copy.deepcopy(value, memo) for key, value in dict.items(self)}

    def copy(self):
        return dict(dict.items(self))


def _noting(value, file, path):
    if type(value) is dict:
        result = NotingDict((key, _noting(inner, file, path + (str(key),))) for key, inner in value.items())
        result._weft_file = file
        result._weft_path = path
        for key, inner in value.items():
            if not isinstance(inner, dict):
                file.keys.append(".".join(path + (str(key),)))
        return result
    return value


def watch(yaml):
    for name in ("safe_load", "load", "full_load", "unsafe_load"):
        original = getattr(yaml, name, None)
        if original is not None:
            setattr(yaml, name, _watched(original))
    for dumper in ("SafeDumper", "Dumper", "CSafeDumper", "CDumper"):
        cls = getattr(yaml, dumper, None)
        if cls is not None:
            cls.add_representer(
                NotingDict, lambda d, data: d.represent_dict(dict(dict.items(data)))
            )


def _watched(original):
    def load(stream, *args, **kwargs):
        value = original(stream, *args, **kwargs)
        if probe.recorder.alive() and type(value) is dict:
            noted = guarded("yaml")(_note)(stream, value)
            if noted is not None:
                return noted
        return value

    load.__doc__ = original.__doc__
    load.__wrapped__ = original
    return load


def _note(stream, value):
    name = getattr(stream, "name", None)
    if not isinstance(name, str):
        # Text instead of a file has no name.
        return None
    name = os.path.abspath(name)
    file = _files.setdefault(name, _File(name))
    file.keys = []
    noted = _noting(value, file, ())
    _tell()
    return noted

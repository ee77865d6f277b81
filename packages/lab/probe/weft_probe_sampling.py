"""Which steps are recorded. A record costs about ten microseconds, too much for steps of less than a few milliseconds: of those,
one stands for a block of 2, 4, 8, ... and the others are only counted, except for long ones, which are always recorded. The
choice depends on the number of the step alone, so that all ranks record the same steps, and it is irregular, because loaders
and logs are periodic."""

import collections

_record_share = 0.0025  # of the time of a step; counting the other steps costs about as much
_most_seconds = 0.05  # between two records
_most_level = 12
_long = 4.0  # times the usual step
_never = float("inf")


def chosen(block, level):
    """The step that stands for the steps from block * 2**level on; one of larger blocks stands for smaller ones as well."""
    while level:
        mixed = (block * 0x9E3779B1 + level * 0x85EBCA6B) & 0xFFFFFFFF
        mixed = ((mixed ^ (mixed >> 16)) * 0x45D9F3B) & 0xFFFFFFFF
        block = 2 * block + (mixed >> 16 & 1)
        level -= 1
    return block


def _median(values):
    return sorted(values)[len(values) // 2]


class Sampling:
    first_steps = 256  # always recorded: warm-up, short jobs, and what the cost is known from

    def __init__(self):
        self.next = 0  # number of the next step that is recorded
        self.until = 1  # end of its block
        self.long = _never  # seconds from which a step is recorded besides
        self.level = 0
        self.wanted = 0
        self.represented = 0  # steps before `until` that records stand for
        self.cost = 0.0  # seconds per record
        self.costs = collections.deque(maxlen=32)
        self.durations = collections.deque(maxlen=32)

    def recorded(self, step, cost, duration):
        """A step was recorded, at a cost of so many seconds. Returns the number of steps that it stands for."""
        if step != self.next:
            self.represented += 1
            return 1
        self.costs.append(cost)
        self.durations.append(duration)
        # Long steps stand for themselves; the next usual one represents the rest of their block.
        weight = 1 if duration > self.long else max(1, self.until - self.represented)
        self.represented += weight
        level = self.level
        if level != self.wanted:
            # A block begins at a multiple of its length.
            level = self.wanted
            while self.until & ((1 << level) - 1):
                level -= 1
            self.level = level
        self.next = chosen(self.until >> level, level) if level else self.until
        self.until += 1 << level
        return weight

    def decide(self, line_cost):
        """Adapts the length of the blocks to the cost of a record: that of the last ones and `line_cost`, its time in the file."""
        if self.until <= self.first_steps:
            return
        self.cost = cost = _median(self.costs) + line_cost
        duration = _median(self.durations)
        level = 0
        while level < _most_level and cost > _record_share * duration * (1 << level):
            level += 1
        while level and duration * (1 << level) > _most_seconds:
            level -= 1
        # A step time that varies a little does not change the level.
        if level > self.wanted or cost < 0.7 * _record_share * duration * (1 << level):
            self.wanted = level
        self.long = _long * duration if self.wanted else _never

"""The state of a PyTorch training loop, which the hooks of loaders, backward passes and optimizer steps share."""


class _Seen:
    """Totals of the steps that were observed, not only counted: backward passes, those that exchanged gradients, ..."""

    def __init__(self):
        self.steps = self.passes = self.syncs = self.updates = 0
        self.after = 0.0
        self.odd = 0  # batches of the training loader that trained nothing, or between whose parts another loader was used
        self.last = None  # optimizer steps of the last step that was observed, and how often they were others than before
        self.changes = 0

    def all_alike(self):
        """Whether the others may be taken for steps like these. One change in a hundred is that of a scaler that skips an update."""
        return self.updates > 0 and self.odd == 0 and 100 * self.changes <= self.steps


class _Loop:
    """State of the training loop: the loader whose batches are followed by optimizer steps."""

    def __init__(self):
        self.iterator = None  # iterator of the current batch
        self.epoch = 0
        self.epoch_of = None  # iterator that the current epoch belongs to
        self.asked = None
        self.waited = 0.0
        self.samples = None
        self.backward = 0.0
        self.loss = None
        self.losses = []
        self.trained = False  # an optimizer step was made since the batch came
        self.optimizer_began = None
        self.optimizer_time = 0.0
        self.updates = 0  # optimizer steps in this epoch
        self.last_update = None
        self.epoch_start = None
        self.epoch_end = None
        self.epoch_samples = 0
        self.epoch_steps = 0
        self.cpu = True
        self.described = False
        self.optimizer = None  # of the last captured CUDA graph
        self.content = 0  # hash of the values of the first batches
        self.content_batches = 0
        self.all_updates = 0  # optimizer steps of the run
        self.parameters = None
        self.orders = []  # hash of the first indices of each epoch
        self.evaluation = 0.0  # seconds of batches without training, from another loader inside training epochs
        self.after = 0.0  # seconds between the end of the optimizer step and the request for the next batch
        self.updated = None  # end of the optimizer step of this batch
        self.passes = 0  # backward passes, and those that exchanged gradients
        self.syncs = 0
        self.before = (0, 0, 0)  # backward passes, exchanges and optimizer steps before this step
        self.seen = _Seen()
        self.full = True  # this step is recorded
        self.counted = None  # iterator whose steps are only counted at present
        self.counted_steps = 0  # how many will be, and how many are left
        self.left = 0
        self.long = 0.0  # seconds from which one of them is recorded nevertheless
        self.samples_before = None  # samples before a step of its epoch
        self.epoch_counted = 0  # steps of the epoch that were only counted
        self.in_backward = False
        self.loader_starts = 0
        self.loader_start_time = 0.0
        self.thread = None  # the thread that trains, known from the first backward pass on
        self.suspended = None  # the training loader and its batch while another loader is used

    def suspend(self):
        """Another loader is used before the current batch has trained: for an evaluation, or instead of it."""
        self.seen.odd += 1
        self.suspended = (self.iterator, self.asked, self.waited, self.samples, self.full, self.before)

    def resume(self):
        self.iterator, self.asked, self.waited, self.samples, self.full, self.before = self.suspended
        self.suspended = None

    def counted_now(self):
        """Steps that were counted and are not yet among those of the recorder."""
        return self.counted_steps - self.left if self.counted is not None else 0


loop = _Loop()

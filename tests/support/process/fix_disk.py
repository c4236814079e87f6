"""Disks that fail: operations that raise, and a machine that loses its power."""

from __future__ import annotations

from contextlib import contextmanager
from itertools import product

from canal_server.position.atomic_file import Disk


class PowerCut(Exception):  # noqa: N818  # an event, not an error of the program
    """The machine is off; nothing more happens on it."""


class FaultyDisk(Disk):
    """The real disk, where one operation can be made to fail."""

    WRITES = ("make_directory", "create", "write", "sync", "close")
    NAMES = ("remove", "link", "replace", "sync_directory")

    def __init__(self):
        self.operations = []  # names of those that were done or tried
        self._failing_at = None
        self._error = None

    @contextmanager
    def failing(self, at, error):
        """Make the operation with this number from now on, from 0 on, fail."""
        self._failing_at = len(self.operations) + at
        self._error = error
        try:
            yield
        finally:
            self._failing_at = None

    @contextmanager
    def always_failing(self, name, error):
        """Make all operations of this name fail."""
        self._failing_at = name
        self._error = error
        try:
            yield
        finally:
            self._failing_at = None


def _faulty(name):
    def operation(self, *args):
        self.operations.append(name)
        if self._failing_at in (len(self.operations) - 1, name):
            if name == "write":
                Disk.write(self, args[0], args[1][: len(args[1]) // 2])
            if name == "close":
                Disk.close(self, *args)
            raise self._error
        return getattr(Disk, name)(self, *args)

    return operation


for _name in (*FaultyDisk.WRITES, *FaultyDisk.NAMES):
    setattr(FaultyDisk, _name, _faulty(_name))


class _Inode:
    """A file's content, and what of it is on the disk for certain."""

    def __init__(self, content=b""):
        self.content = content
        self.synced = content

    def after_power_cut(self):
        """Return everything that may be found of it."""
        if self.content == self.synced:
            return {self.content}
        # New lengths may be there before new blocks are.
        zeros = bytes(len(self.content))
        return {self.synced, self.content, zeros, self.content[: len(zeros) // 2]}


class PowerlessDisk(Disk):
    """A disk in memory whose machine can lose its power before any operation.

    Content that was not synced may then be old, truncated or zeros; of the names that
    were changed since the directory was synced the first few are changed.
    """

    def __init__(self, files=None):
        self._names = {path: _Inode(content) for path, content in (files or {}).items()}
        self._synced_names = dict(self._names)
        self._changes = []  # functions on a dict of names, since the last sync
        self._open = {}
        self.steps_left = None  # None: power without end

    def _step(self):
        if self.steps_left is not None:
            self.steps_left -= 1
            if self.steps_left < 0:
                raise PowerCut

    def _change(self, change):
        change(self._names)
        self._changes.append(change)

    def states(self):
        """Return all that may be found later: dicts of path and content."""
        found = []
        for count in range(len(self._changes) + 1):
            names = dict(self._synced_names)
            for change in self._changes[:count]:
                change(names)
            contents = [inode.after_power_cut() for inode in names.values()]
            found += [
                dict(zip(names, each, strict=True)) for each in product(*contents)
            ]
        return found

    def read(self, path):
        """Return what the running machine sees."""
        if path not in self._names:
            raise FileNotFoundError(path)
        return self._names[path].content

    def make_directory(self, path):
        """Do nothing but take time."""
        self._step()

    def create(self, path):
        """Add a file; its descriptor is a number that was not used yet."""
        self._step()
        if path in self._names:
            raise FileExistsError(path)
        inode = _Inode()
        self._change(lambda names: names.update({path: inode}))
        self._open[len(self._open)] = inode
        return len(self._open) - 1

    def write(self, descriptor, data):
        """Write half of the data, as a full pipe or quota would."""
        self._step()
        written = max(1, len(data) // 2)
        self._open[descriptor].content += data[:written]
        return written

    def sync(self, descriptor):
        """Make a file's content certain."""
        self._step()
        self._open[descriptor].synced = self._open[descriptor].content

    def close(self, descriptor):
        """Do nothing but take time."""
        self._step()

    def remove(self, path):
        """Take a name away."""
        self._step()
        self._change(lambda names: names.pop(path, None))

    def link(self, path, other):
        """Add a name."""
        self._step()
        if path not in self._names:
            raise FileNotFoundError(path)
        if other in self._names:
            raise FileExistsError(other)
        self._change(lambda names: names.update({other: names[path]}))

    def replace(self, path, other):
        """Rename; two names of one file both stay, as POSIX has it."""
        self._step()

        def change(names):
            if names.get(other) is not names[path]:
                names[other] = names.pop(path)

        self._change(change)

    def sync_directory(self, path):
        """Make all names certain."""
        self._step()
        self._synced_names = dict(self._names)
        self._changes = []

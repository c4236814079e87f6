# cython: language_level=3
"""Renders samples as lines of Prometheus' text format; for a thousand destinations.

Leaves out the lines about a family, and which samples there are (`metrics_text`).
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from libc.string cimport memcpy, strlen

cdef extern from "Python.h":
    char* PyOS_double_to_string(double, char, int, int, int*) except NULL
    const char* PyUnicode_AsUTF8AndSize(object, Py_ssize_t*) except NULL
    bint Py_IS_FINITE(double)

cdef enum:
    ADD_DOT_0 = 2  # Py_DTSF_ADD_DOT_0
    FIRST_BYTES = 64 * 1024


cdef class SampleLines:
    """The lines of one text; remembers how labels are written, as most recur."""

    cdef char* data
    cdef size_t size
    cdef size_t capacity
    cdef dict _one  # text by the label of samples that have only one
    cdef dict _several  # by the labels and their values

    def __init__(self):
        self._one = {}
        self._several = {}

    def __dealloc__(self):
        PyMem_Free(self.data)

    def add(self, str text):
        """Add lines as they are, with their ends."""
        self._put(text)

    def add_samples(self, list samples):
        """Add a line for each sample: (name, labels, value, …)."""
        cdef object sample
        for sample in samples:  # a named tuple
            self._put((<tuple>sample)[0])
            self._put(self._labels((<tuple>sample)[1]))
            self._put_bytes(b" ", 1)
            self._put_number((<tuple>sample)[2])
            self._put_bytes(b"\n", 1)

    def text(self):
        """Return all lines, encoded."""
        return PyBytes_FromStringAndSize(self.data, self.size)

    cdef int _put(self, str text) except -1:
        cdef Py_ssize_t size = 0
        cdef const char* found = PyUnicode_AsUTF8AndSize(text, &size)
        return self._put_bytes(found, size)

    cdef int _put_bytes(self, const char* found, size_t size) except -1:
        cdef char* data
        cdef size_t capacity
        if size > self.capacity - self.size:
            capacity = max(FIRST_BYTES, 2 * self.capacity, self.size + size)
            data = <char*>PyMem_Realloc(self.data, capacity)
            if data == NULL:
                raise MemoryError(f"no memory for {capacity} bytes of metrics")
            self.data, self.capacity = data, capacity
        memcpy(self.data + self.size, found, size)
        self.size += size
        return 0

    cdef int _put_number(self, double value) except -1:
        """Add a value as Python writes it, but for those that are not finite."""
        cdef char* digits
        if value != value:
            return self._put_bytes(b"NaN", 3)
        if not Py_IS_FINITE(value):
            return self._put_bytes(b"+Inf" if value > 0 else b"-Inf", 4)
        digits = PyOS_double_to_string(value, c"r", 0, ADD_DOT_0, NULL)
        try:
            return self._put_bytes(digits, strlen(digits))
        finally:
            PyMem_Free(digits)

    cdef str _labels(self, dict labels):
        cdef object key, found
        if not labels:
            return ""
        if len(labels) == 1:
            for item in labels.items():
                key = item
            found = self._one.get(key)
            if found is None:
                found = self._one[key] = _labels_text(labels)
        else:
            key = (*labels, *labels.values())
            found = self._several.get(key)
            if found is None:
                found = self._several[key] = _labels_text(labels)
        return <str>found


cdef str _labels_text(dict labels):
    """Return labels as they are written, by name."""
    texts = [f'{key}="{_escaped(labels[key])}"' for key in sorted(labels)]
    return f"{{{','.join(texts)}}}"


cdef str _escaped(str text):
    if "\\" in text or '"' in text or "\n" in text:
        text = text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
    return text

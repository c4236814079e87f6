# cython: language_level=3
"""Labels for the numbers in which entries carry ENUM and SET.

An ENUM is the number of its label, counted from 1; 0 is the empty text, which a server
stores instead of an invalid value. A SET has one bit per label.
"""

from libc.stdint cimport uint64_t
from libc.stdlib cimport calloc, free

from canal_server.arrow.column_buffers cimport (
    BAD_VALUE, NO_ROOM, OK, end_value, put_piece, put_text,
)

from canal_server.model.enum_labels import labels_of


cdef class ColumnLabels:
    """The labels of one type, as COLUMN_TYPE has it."""

    def __cinit__(self, str mysql_type):
        cdef size_t i = 0
        self.texts = [
            label if isinstance(label, bytes) else label.encode()
            for label in labels_of(mysql_type)
        ]
        self.labels.count = len(self.texts)
        self.labels.labels = <Slice*>calloc(self.labels.count + 1, sizeof(Slice))
        if self.labels.labels == NULL:
            raise MemoryError("no memory for the labels of a column")
        for i in range(self.labels.count):
            # Labels in hexadecimal digits need not be text; convert them.
            text = self.texts[i] = (<bytes>self.texts[i]).decode(
                "utf-8", "replace").encode()
            self.labels.labels[i].p = <bytes>text
            self.labels.labels[i].n = len(text)

    def __dealloc__(self):
        free(self.labels.labels)

    def __len__(self):
        return self.labels.count


cdef int put_enum(ArrowColumn* column, const Labels* labels,
                  uint64_t number) noexcept nogil:
    if number > labels.count:
        return BAD_VALUE
    if number == 0:
        return put_text(column, NULL, 0)
    return put_text(column, labels.labels[number - 1].p, labels.labels[number - 1].n)


cdef int put_set(ArrowColumn* column, const Labels* labels, uint64_t bits) noexcept nogil:
    cdef size_t i
    cdef bint first = True
    if labels.count < 64 and bits >> labels.count:
        return BAD_VALUE
    for i in range(labels.count):
        if i < 64 and bits >> i & 1:
            if not first and put_piece(&column.values, b",", 1) != OK:
                return NO_ROOM
            first = False
            if labels.labels[i].n and put_piece(
                    &column.values, labels.labels[i].p, labels.labels[i].n) != OK:
                return NO_ROOM
    return end_value(column)

# cython: language_level=3, cdivision=True
"""Hashes of primary keys, which assign the rows of a range to tasks.

The hash of a key is the sum of its columns' hashes, so the order and names of columns
do not matter: 64-bit FNV-1a over the text in the entry. A row without a key has the
hash of its table's name. The finalizer of MurmurHash3 mixes the hash before the
division. None of this may change: tasks of different releases may read one batch.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from canal_server.core.wire cimport Input
from canal_server.arrow.column_buffers cimport MALFORMED, OK
from canal_server.arrow.entry_shapes cimport ColumnText, Shape, read_column
from canal_server.core.entry_wire cimport (
    TAG_AFTER, TAG_BEFORE, Slice, input_of, skip_field, take_slice, take_varint,
)

cdef uint64_t FNV_BASIS = 0xCBF29CE484222325
cdef uint64_t FNV_PRIME = 0x100000001B3

cdef enum:
    KEY_COLUMNS_MAX = 32  # per index, in MariaDB; MySQL has 16

cdef struct KeyImage:
    uint32_t[KEY_COLUMNS_MAX] indexes  # of the columns
    uint64_t[KEY_COLUMNS_MAX] hashes
    size_t count


cdef uint64_t hashed_bytes(uint64_t hashed, const uint8_t* p, size_t n) noexcept nogil:
    cdef size_t i
    for i in range(n):
        hashed = (hashed ^ p[i]) * FNV_PRIME
    return hashed


cdef int read_keys(Shape* shape, Slice row, RowKeys* keys) noexcept nogil:
    cdef Input source = input_of(row)
    cdef KeyImage[2] images
    cdef KeyImage* image
    cdef size_t[2] at
    cdef Slice column, value
    cdef ColumnText* text
    cdef uint64_t tag
    cdef int number, status
    images[0].count = images[1].count = at[0] = at[1] = 0
    keys.changed = False
    while source.p < source.end:
        tag = take_varint(&source)
        if tag != TAG_BEFORE and tag != TAG_AFTER:
            skip_field(&source, tag)
            continue
        column = take_slice(&source)
        if source.short:
            return MALFORMED
        number = tag == TAG_AFTER
        status = read_column(shape, at[number], column, &text, &value)
        at[number] += 1
        if status != OK:
            return status
        if not text.is_key:
            continue
        image = &images[number]
        if image.count < KEY_COLUMNS_MAX:
            image.indexes[image.count] = text.index
            image.hashes[image.count] = hashed_bytes(FNV_BASIS, value.p, value.n)
            image.count += 1
        if number and text.updated:
            keys.changed = True
    if source.short:
        return MALFORMED
    if images[0].count + images[1].count == 0:
        keys.before = keys.after = table_hash(shape)
        return OK
    # A column that one image omits is read from the other.
    keys.before = key_hash(&images[0], &images[1])
    keys.after = key_hash(&images[1], &images[0])
    return OK


cdef uint64_t key_hash(const KeyImage* image, const KeyImage* other) noexcept nogil:
    cdef uint64_t total = 0
    cdef size_t i, k
    for i in range(image.count):
        total += image.hashes[i]
    for k in range(other.count):
        for i in range(image.count):
            if image.indexes[i] == other.indexes[k]:
                break
        else:
            total += other.hashes[k]
    return total


cdef uint64_t table_hash(const Shape* shape) noexcept nogil:
    return hashed_bytes(FNV_BASIS, shape.names, shape.schema_n + shape.table_n)


cdef uint32_t part_of(uint64_t hashed, uint32_t count) noexcept nogil:
    hashed = (hashed ^ hashed >> 33) * <uint64_t>0xFF51AFD7ED558CCD
    hashed = (hashed ^ hashed >> 33) * <uint64_t>0xC4CEB9FE1A85EC53
    return <uint32_t>((hashed ^ hashed >> 33) % count)

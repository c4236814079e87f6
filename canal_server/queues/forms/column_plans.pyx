# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""How the values of columns are written: found once for each column of a table.

Entries repeat the name and the type of a column in each row. They are compared with
those of the plan, as bytes, and looked up only if they differ.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memset

import json

from canal_server.arrow.type_pairs import filled_bytes
from canal_server.core.entry_wire cimport same
from canal_server.errors import ProtocolError
from canal_server.queues.batch_rows cimport COLUMNS_MAX
from canal_server.queues.forms.column_traits import traits_of
from canal_server.queues.table_routes cimport HASH_COLUMNS, HASH_KEY

KINDS = {
    "integer": KIND_INTEGER, "decimal": KIND_DECIMAL, "float": KIND_FLOAT,
    "double": KIND_DOUBLE, "bit": KIND_BIT, "year": KIND_YEAR, "date": KIND_DATE,
    "datetime": KIND_DATETIME, "timestamp": KIND_TIMESTAMP, "time": KIND_TIME,
    "enum": KIND_ENUM, "set": KIND_SET, "json": KIND_JSON, "geometry": KIND_GEOMETRY,
    "vector": KIND_VECTOR, "bytes": KIND_BYTES, "text": KIND_TEXT,
}

cdef enum:
    PLANS_MAX = 2 * COLUMNS_MAX     # of a table, its earlier columns included


cdef class ColumnPlan:
    """What is known of a column. Raises ProtocolError for names that are not UTF-8."""

    def __init__(self, bytes name, bytes mysql_type, int32_t sql_type, bint is_key,
                 Route route):
        try:
            self.name, self.mysql_type = name.decode(), mysql_type.decode()
        except UnicodeDecodeError:
            raise ProtocolError("malformed entry in a batch") from None
        self.kind, self.a, self.b = traits_of(self.mysql_type, sql_type)
        label = as_json(self.name) + b":"
        key_label = as_json("pk." + self.name.lower()) + b":"
        self.owned = (name, mysql_type, label, key_label)
        self.is_key = is_key
        memset(&self.plan, 0, sizeof(Plan))
        self.plan.name, self.plan.mysql_type = slice_of(name), slice_of(mysql_type)
        self.plan.label, self.plan.key_label = slice_of(label), slice_of(key_label)
        self.plan.kind, self.plan.a, self.plan.b = KINDS[self.kind], self.a, self.b
        self.plan.is_key = is_key
        self.plan.filled = filled_bytes(self.mysql_type)
        if route.mode == HASH_KEY:
            self.plan.hashed = is_key
        elif route.mode == HASH_COLUMNS:
            self.plan.hashed = route.names(self.plan.name)
        if self.plan.kind in (KIND_ENUM, KIND_SET):
            self.labels = ColumnLabels(self.mysql_type)
            self.plan.labels = &self.labels.labels


cdef class TablePlans:
    """The plans of a table, whose rows go where `route` says."""

    def __init__(self, Route route):
        self.route = route
        self.known = {}
        self.schemas = {}

    def __dealloc__(self):
        free(self.plans)

    cdef Plan* find(self, const Column* column) except NULL:
        cdef Plan* plan
        if column.index < self.room:
            plan = self.plans[column.index]
            if plan != NULL and plan.is_key == column.is_key and (
                    same(column.mysql_type, plan.mysql_type.p, plan.mysql_type.n)
                    and same(column.name, plan.name.p, plan.name.n)):
                return plan
        return self.look_up(column)

    cdef Plan* look_up(self, const Column* column) except NULL:
        """Find the plan by name and type, or make it, and note it for its number."""
        cdef bytes name = column.name.p[:column.name.n]
        cdef bytes mysql_type = column.mysql_type.p[:column.mysql_type.n]
        cdef ColumnPlan found
        cdef void* grown
        cdef size_t room
        # The type in JDBC counts without another one only.
        cdef int32_t sql_type = 0 if mysql_type else column.sql_type
        cdef tuple key = (name, mysql_type, bool(column.is_key), sql_type)
        found = self.known.get(key)
        if found is None:
            if len(self.known) >= PLANS_MAX:
                raise ProtocolError(f"a table has more than {PLANS_MAX} columns")
            found = ColumnPlan(
                name, mysql_type, column.sql_type, column.is_key, self.route)
            self.known[key] = found
        if column.index < COLUMNS_MAX and mysql_type:
            if column.index >= self.room:
                room = min(<size_t>COLUMNS_MAX, 2 * <size_t>column.index + 16)
                grown = realloc(self.plans, room * sizeof(Plan*))
                if grown == NULL:
                    raise MemoryError("no memory for the columns of a table")
                self.plans = <Plan**>grown
                memset(self.plans + self.room, 0, (room - self.room) * sizeof(Plan*))
                self.room = room
            self.plans[column.index] = &found.plan
        return &found.plan

    @property
    def is_full(self):
        """Whether the table has had so many columns that it should be forgotten."""
        return len(self.known) >= COLUMNS_MAX

    cdef ColumnPlan object_of(self, const Plan* plan):
        """Return the object of a plan of this table."""
        cdef ColumnPlan each
        for each in self.known.values():
            if &each.plan == plan:
                return each
        raise AssertionError("the plan is of this table")


cdef bytes as_json(str text):
    """Return a text as JSON has it, beyond ASCII as it is."""
    return json.dumps(text, ensure_ascii=False).encode()


cdef Slice slice_of(bytes text) noexcept:
    cdef Slice found
    found.p, found.n = <const uint8_t*>PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text)
    return found

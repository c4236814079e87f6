# cython: language_level=3
"""How often a transaction without rows passes: about every five seconds.

Clients learn from it that the source is alive and where it stands. The sink drops empty
transactions for all clients, and a filtered cursor does the same again for its client.
"""

from libc.stdint cimport uint32_t

cdef enum:
    SILENCE_SECONDS = 5
    SWALLOWED_MAX = 8192

cdef struct Emptiness:
    uint32_t time       # of the last one that passed, s
    uint32_t swallowed  # how many did not since then

cdef inline bint is_quiet(const Emptiness* state, uint32_t time) noexcept nogil:
    """Return whether the last one that passed is at most five seconds away."""
    cdef uint32_t apart = time - state.time if time > state.time else state.time - time
    return apart <= SILENCE_SECONDS

cdef inline bint empty_passes(Emptiness* state, uint32_t time) noexcept nogil:
    """Decide on a transaction without rows that begins at `time`, in s."""
    if is_quiet(state, time):
        state.swallowed += 1
        if state.swallowed <= SWALLOWED_MAX:
            return False
    state.swallowed = 0
    state.time = time
    return True

# cython: language_level=3, cdivision=True
"""Waits for news of an idle source, and drops heartbeats that repeat the last one.

A source that has nothing to send says so every few seconds. With a thousand sources,
waking the interpreter for each would cost more than anything else that an idle server
does; so these packets are looked at, and taken, without its lock.

    packet   3 length, 1 sequence number, 1 zero: an event; 4 time, 1 type, …
"""

from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memcmp, memcpy

cdef extern from "<poll.h>" nogil:
    struct pollfd:
        int fd
        short events
        short revents
    int POLLIN
    int c_poll "poll"(pollfd* fds, unsigned long count, int timeout_ms)

cdef extern from "<sys/socket.h>" nogil:
    int MSG_DONTWAIT
    int MSG_PEEK
    ssize_t recv(int fd, void* to, size_t n, int flags)

cdef extern from "<time.h>" nogil:
    struct timespec:
        long tv_sec
        long tv_nsec
    int CLOCK_MONOTONIC
    int clock_gettime(int clock, timespec* found)

cdef enum:
    PACKET_BYTES_MAX = 1024  # a file's name has 512 at most
    HEADER = 4
    TYPE_AT = 9
    HEARTBEAT = 27
    HEARTBEAT_V2 = 41


cdef inline double monotonic() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return now.tv_sec + now.tv_nsec * 1e-9


cdef class Heartbeats:
    """What the last heartbeat of a source said, and when anything was last heard.

    For one thread at a time; the attributes may be read by any.
    """

    cdef public double heard_at           # by the monotonic clock, s
    cdef readonly uint64_t dropped        # heartbeats
    cdef readonly uint64_t dropped_bytes  # with their packets' headers
    cdef uint8_t[PACKET_BYTES_MAX] known  # the last one, without its packet's header
    cdef size_t known_n

    def wait(self, int fd, int stop_fd, double silence_s, double limit_s):
        """Wait until there is something else to read, and leave it unread.

        Also returns when `stop_fd` is readable, when the source was silent for
        `silence_s` seconds, after `limit_s` seconds, and at a signal. The next byte of
        the socket must be the first one of a packet.
        """
        with nogil:
            self.run(fd, stop_fd, silence_s, monotonic() + limit_s)

    cdef void run(self, int fd, int stop_fd, double silence_s,
                  double until) noexcept nogil:
        cdef pollfd[2] fds
        cdef double left_s, left_here_s
        cdef int ready
        fds[0].fd, fds[1].fd = fd, stop_fd
        fds[0].events = fds[1].events = POLLIN
        while True:
            left_s = self.heard_at + silence_s - monotonic()
            left_here_s = until - monotonic()
            if left_here_s < left_s:
                left_s = left_here_s
            if left_s <= 0:
                return
            # Rounded up: poll counts in ms, and 0 would make the loop spin.
            ready = c_poll(fds, 2, <int>(left_s * 1000) + 1)
            if ready < 0:
                return  # a signal
            if ready == 0:
                continue
            if fds[1].revents or not self.drop(fd):
                return

    cdef bint drop(self, int fd) noexcept nogil:
        """Take a heartbeat that says what the last one said; false for all else."""
        cdef uint8_t[HEADER + PACKET_BYTES_MAX] packet
        cdef ssize_t got = recv(fd, packet, sizeof(packet), MSG_PEEK | MSG_DONTWAIT)
        cdef size_t n
        if got <= TYPE_AT:
            return False  # the end, an error, or too little to know
        n = packet[0] | packet[1] << 8 | packet[2] << 16
        if (not TYPE_AT - HEADER < n <= PACKET_BYTES_MAX
                or <size_t>got < HEADER + n or packet[HEADER] != 0
                or packet[TYPE_AT] not in (HEARTBEAT, HEARTBEAT_V2)):
            self.known_n = 0
            return False
        if n != self.known_n or memcmp(self.known, packet + HEADER, n) != 0:
            memcpy(self.known, packet + HEADER, n)
            self.known_n = n
            return False
        if recv(fd, packet, HEADER + n, MSG_DONTWAIT) != <ssize_t>(HEADER + n):
            return False  # the connection broke meanwhile
        self.heard_at = monotonic()
        self.dropped += 1
        self.dropped_bytes += HEADER + n
        return True

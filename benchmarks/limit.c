/* An upper bound for a server that turns a binlog into entries for a client.

   Reads a dump from one descriptor, writes to another what has the size and the texts
   of the entries, and stops at the end of the transaction in which a number of rows is
   reached:

       limit SOURCE_FD CLIENT_FD ROWS

   It knows the one table of the benchmarks and trusts every byte. What makes a server
   is left out: checksums, checks of lengths, filters, positions, batches, acks.
   Prints a line of JSON; times are of CLOCK_MONOTONIC, in seconds. */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { COLUMNS = 10, READ_BYTES = 1 << 20, FLUSH_BYTES = 256 << 10 };
enum { ENVELOPE_BYTES = 92, MARKER_BYTES = 58 }; /* of an entry around its rows, of a BEGIN */

enum {
    QUERY = 2, XID = 16, TABLE_MAP = 19, INSERT = 30, UPDATE = 31,
    HEADER_BYTES = 19, CHECKSUM_BYTES = 4, TABLE_ID_FLAGS_BYTES = 8,
};

enum {
    TINY = 1, LONG = 3, LONGLONG = 8, VARCHAR = 15, BIT = 16, TIMESTAMP2 = 17,
    DATETIME2 = 18, NEWDECIMAL = 246,
};

static const struct { const char *name, *type; int sql_type; } table[COLUMNS] = {
    {"id", "bigint unsigned", -5}, {"k", "int", 4}, {"name", "varchar(64)", 12},
    {"email", "varchar(128)", 12}, {"amount", "decimal(12,2)", 3},
    {"status", "tinyint", -6}, {"created", "datetime", 93},
    {"updated", "timestamp", 93}, {"note", "varchar(255)", 12}, {"flag", "bit(1)", -7},
};

/* What stands before and after a value in a Column message, made once. */
typedef struct {
    uint8_t type, before[48], after[32];
    uint16_t meta;
    int before_size, after_size;
} column_t;

static column_t columns[COLUMNS];
static int known; /* the last table map was that of our table */
static long rows, transactions, events, requested;
static int done; /* a transaction ended, and the requested rows were there */

static uint8_t *put_varint(uint8_t *out, uint64_t value)
{
    for (; value > 127; value >>= 7)
        *out++ = value | 128;
    *out++ = value;
    return out;
}

static uint8_t *put_field(uint8_t *out, int tag, const char *text)
{
    size_t size = strlen(text);
    *out++ = tag;
    *out++ = size;
    memcpy(out, text, size);
    return out + size;
}

/* A length in exactly 3 bytes, so that its bytes can be reserved before it is known. */
static void put_length3(uint8_t *out, size_t length)
{
    out[0] = length | 128;
    out[1] = length >> 7 | 128;
    out[2] = length >> 14;
}

static void make_columns(void)
{
    for (int i = 0; i < COLUMNS; i++) {
        column_t *column = &columns[i];
        uint8_t *out = column->before;
        if (i) {
            *out++ = 8;
            *out++ = i;
        }
        *out++ = 16;
        out = put_varint(out, (uint64_t)(int64_t)table[i].sql_type);
        out = put_field(out, 0x1a, table[i].name);
        if (!i) {
            *out++ = 32;
            *out++ = 1;
        }
        memcpy(out, "\x28\x01\x30\x00\x42", 5); /* updated, not null, a value */
        column->before_size = out + 5 - column->before;
        column->after_size = put_field(column->after, 0x52, table[i].type) - column->after;
    }
}

static void read_table_map(const uint8_t *p)
{
    p += TABLE_ID_FLAGS_BYTES;
    p += *p + 2;
    p += *p + 2;
    known = *p++ == COLUMNS;
    if (!known)
        return;
    const uint8_t *meta = p + COLUMNS + 1;
    for (int i = 0; i < COLUMNS; i++) {
        columns[i].type = p[i];
        switch (p[i]) {
        case VARCHAR: case BIT: case NEWDECIMAL:
            columns[i].meta = meta[0] | meta[1] << 8;
            meta += 2;
            break;
        case TIMESTAMP2: case DATETIME2:
            columns[i].meta = *meta++;
        }
    }
}

static uint8_t *put_digits(uint8_t *out, uint64_t value)
{
    uint8_t digits[20];
    int at = 20;
    do
        digits[--at] = '0' + value % 10;
    while (value /= 10);
    memcpy(out, digits + at, 20 - at);
    return out + 20 - at;
}

static uint8_t *put_signed(uint8_t *out, int64_t value)
{
    if (value < 0)
        *out++ = '-';
    return put_digits(out, value < 0 ? -value : value);
}

static uint8_t *put_two(uint8_t *out, int value)
{
    *out++ = '0' + value / 10;
    *out++ = '0' + value % 10;
    return out;
}

static uint8_t *put_time(uint8_t *out, int year, int month, int day, int second)
{
    out = put_two(put_two(out, year / 100), year % 100);
    *out++ = '-';
    out = put_two(out, month);
    *out++ = '-';
    out = put_two(out, day);
    *out++ = ' ';
    out = put_two(out, second / 3600);
    *out++ = ':';
    out = put_two(out, second / 60 % 60);
    *out++ = ':';
    return put_two(out, second % 60);
}

static uint64_t big_endian(const uint8_t *p, int size)
{
    uint64_t value = 0;
    while (size--)
        value = value << 8 | *p++;
    return value;
}

/* Writes a value's text; returns what follows the value. */
static const uint8_t *put_value(const uint8_t *p, const column_t *column, uint8_t **where)
{
    uint8_t *out = *where;
    switch (column->type) {
    case TINY:
        out = put_signed(out, (int8_t)*p++);
        break;
    case LONG: {
        int32_t value;
        memcpy(&value, p, 4);
        p += 4;
        out = put_signed(out, value);
        break;
    }
    case LONGLONG: {
        uint64_t value;
        memcpy(&value, p, 8);
        p += 8;
        out = put_digits(out, value);
        break;
    }
    case VARCHAR: {
        int size = *p++;
        if (column->meta > 255)
            size |= *p++ << 8;
        memcpy(out, p, size);
        out += size;
        p += size;
        break;
    }
    case BIT:
        out = put_digits(out, *p++); /* bit(1) */
        break;
    case NEWDECIMAL: /* (12,2): 1 digit, 9 digits, 2 digits; positive */
        out = put_digits(out, (p[0] & 127) * 1000000000ULL + big_endian(p + 1, 4));
        *out++ = '.';
        out = put_two(out, p[5]);
        p += 6;
        break;
    case DATETIME2: {
        uint64_t value = big_endian(p, 5) - 0x8000000000ULL;
        int months = value >> 22;
        int second = (value >> 12 & 31) * 3600 + (value >> 6 & 63) * 60 + (value & 63);
        out = put_time(out, months / 13, months % 13, value >> 17 & 31, second);
        p += 5;
        break;
    }
    case TIMESTAMP2: {
        static time_t day = -1;
        static struct tm date;
        time_t value = big_endian(p, 4);
        if (value / 86400 != day) {
            day = value / 86400;
            gmtime_r(&value, &date);
        }
        out = put_time(out, date.tm_year + 1900, date.tm_mon + 1, date.tm_mday, value % 86400);
        p += 4;
        break;
    }
    default:
        fprintf(stderr, "column type %d is not in the table of the benchmarks\n", column->type);
        exit(1);
    }
    *where = out;
    return p;
}

/* Writes the columns of one image; their lengths are below 128, thus one byte each. */
static const uint8_t *put_image(const uint8_t *p, uint8_t **where, int tag)
{
    const uint8_t *nulls = p;
    uint8_t *out = *where;
    p += (COLUMNS + 7) / 8;
    for (int i = 0; i < COLUMNS; i++) {
        const column_t *column = &columns[i];
        uint8_t *start = out;
        *out = tag;
        out += 2;
        memcpy(out, column->before, sizeof column->before);
        out += column->before_size;
        if (nulls[i >> 3] >> (i & 7) & 1) {
            out[-2] = 1;
            out--;
        } else {
            uint8_t *size = out++;
            p = put_value(p, column, &out);
            *size = out - size - 1;
        }
        memcpy(out, column->after, sizeof column->after);
        out += column->after_size;
        start[1] = out - start - 2;
    }
    *where = out;
    return p;
}

static uint8_t *put_rows(uint8_t *out, const uint8_t *p, const uint8_t *end, int type)
{
    static const uint8_t envelope[ENVELOPE_BYTES];
    uint8_t *entry = out;
    p += TABLE_ID_FLAGS_BYTES;
    p += p[0] | p[1] << 8;
    p += 1 + 2 + (type == UPDATE ? 2 : 0); /* column count, bitmaps of columns */
    *out = 0x12;
    out += 4;
    memcpy(out, envelope, ENVELOPE_BYTES);
    out += ENVELOPE_BYTES;
    while (p < end) {
        uint8_t *row = out;
        *out = 0x62;
        out += 4;
        if (type == UPDATE)
            p = put_image(p, &out, 0x0a);
        p = put_image(p, &out, 0x12);
        put_length3(row + 1, out - row - 4);
        rows++;
    }
    put_length3(entry + 1, out - entry - 4);
    return out;
}

static uint8_t *put_marker(uint8_t *out)
{
    static const uint8_t marker[MARKER_BYTES];
    memcpy(out, marker, MARKER_BYTES);
    return out + MARKER_BYTES;
}

/* One binlog event without its checksum. */
static uint8_t *put_event(uint8_t *out, const uint8_t *event, const uint8_t *end)
{
    int type = event[4];
    events++;
    switch (type) {
    case TABLE_MAP:
        read_table_map(event + HEADER_BYTES);
        break;
    case INSERT: case UPDATE:
        if (known)
            out = put_rows(out, event + HEADER_BYTES, end, type);
        break;
    case XID:
        transactions++;
        done = rows >= requested;
        /* fall through */
    case QUERY:
        out = put_marker(out);
    }
    return out;
}

static void write_all(int fd, const uint8_t *from, const uint8_t *to)
{
    while (from < to) {
        ssize_t size = write(fd, from, to - from);
        if (size <= 0) {
            perror("write");
            exit(1);
        }
        from += size;
    }
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

int main(int count, char **arguments)
{
    if (count != 4)
        return 2;
    int source = atoi(arguments[1]), client = atoi(arguments[2]);
    requested = atol(arguments[3]);
    /* An event of 8 KB makes about 45 KB of entries; twice 16 MB hold any here. */
    uint8_t *input = malloc(READ_BYTES + (16 << 20));
    uint8_t *output = malloc(FLUSH_BYTES + (16 << 20)), *out = output;
    size_t held = 0;
    double first = 0;
    long written = 0;

    make_columns();
    while (!done) {
        ssize_t size = read(source, input + held, READ_BYTES);
        if (size <= 0) {
            fprintf(stderr, "the source ended after %ld rows\n", rows);
            return 1;
        }
        if (!first)
            first = now();
        held += size;
        /* packets: length (3 bytes), number, status, event, checksum */
        const uint8_t *p = input, *end = input + held;
        while (!done && end - p >= 4) {
            size_t length = p[0] | p[1] << 8 | (size_t)p[2] << 16;
            if ((size_t)(end - p) < 4 + length)
                break;
            out = put_event(out, p + 5, p + 4 + length - CHECKSUM_BYTES);
            p += 4 + length;
            if (out - output > FLUSH_BYTES) {
                write_all(client, output, out);
                written += out - output;
                out = output;
            }
        }
        held = end - p;
        memmove(input, p, held);
        write_all(client, output, out);
        written += out - output;
        out = output;
    }
    struct timespec cpu;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
    printf("{\"first\": %.6f, \"rows\": %ld, \"transactions\": %ld, \"events\": %ld, "
           "\"bytes\": %ld, \"cpu_s\": %.3f}\n", first, rows, transactions, events, written,
           cpu.tv_sec + cpu.tv_nsec / 1e9);
    return 0;
}

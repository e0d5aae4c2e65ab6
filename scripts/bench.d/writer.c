/* writer LINES WRITE_BYTES [ready] [DELAY_MS]
 *
 * A rank that prints: LINES lines of 80 bytes (0: for ever), handed to write() in pieces of exactly WRITE_BYTES, so a size
 * that is no multiple of 80 cuts lines in the middle. Each line names its rank and number and is filled with a letter that
 * follows from the number: checker.c sees every lost, torn or reordered one. With `ready` the same buffer goes out again and
 * again: nothing is formatted, so the launcher's own speed shows. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "rank.h"

enum { LINE = 80 };

static void format_line(char *to, int rank, long number)
{
    char head[32];
    int width = snprintf(head, sizeof head, "<%04d:%010ld>", rank, number);
    memset(to, 'a' + (int)(number % 26), LINE);
    memcpy(to, head, (size_t)width);
    to[LINE - 1] = '\n';
}

static int put(const char *bytes, long size)
{
    while (size > 0) {
        ssize_t written = write(1, bytes, (size_t)size);
        if (written < 0)
            return 0;
        bytes += written;
        size -= written;
    }
    return 1;
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    long lines = atol(argv[1]), piece = atol(argv[2]), made = 0, held = 0;
    int ready = argc > 3 && !strcmp(argv[3], "ready"), rank = own_rank();
    char *buffer = malloc((size_t)piece + LINE);
    if (argc > 4)
        usleep((unsigned)atoi(argv[4]) * 1000);
    if (ready) {
        for (long at = 0; at < piece; at += LINE)
            format_line(buffer + at, rank, at / LINE);
        for (long left = lines * LINE; lines == 0 || left > 0; left -= piece)
            if (!put(buffer, lines && left < piece ? left : piece))
                return 9;
        return 0;
    }
    while (lines == 0 || made < lines) {
        while (held < piece && (lines == 0 || made < lines)) {
            format_line(buffer + held, rank, made++);
            held += LINE;
        }
        long size = held < piece ? held : piece;
        if (!put(buffer, size))
            return 9;
        held -= size;
        memmove(buffer, buffer + size, (size_t)held);
    }
    return put(buffer, held) ? 0 : 9;
}

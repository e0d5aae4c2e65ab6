/* checker RANKS LINES_PER_RANK plain|labelled < OUTPUT
 *
 * Reads what RANKS writers (writer.c) printed through a launcher and says what arrived: prints
 *   whole torn missing reordered bytes
 * A line is whole if its last 80 bytes are one record and, with `labelled`, a label of at most 40 bytes (no record in it) is
 * all that stands before it. Exit code 1 if anything is torn, missing or out of order. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

enum { LINE = 80, HEAD = 17, MAX_LABEL = 40 };

static int whole(const char *record, int *rank, long *number)
{
    if (sscanf(record, "<%4d:%10ld>", rank, number) != 2 || *number < 0)
        return 0;
    for (int i = HEAD; i < LINE - 1; i++)
        if (record[i] != 'a' + *number % 26)
            return 0;
    return record[LINE - 1] == '\n';
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    int ranks = atoi(argv[1]), labelled = !strcmp(argv[3], "labelled");
    long each = atol(argv[2]), good = 0, torn = 0, reordered = 0, bytes = 0;
    long *next = calloc((size_t)ranks, sizeof *next);
    char *line = NULL;
    size_t capacity = 0;
    for (ssize_t size; (size = getline(&line, &capacity, stdin)) > 0;) {
        int rank = -1;
        long number = -1, label = size - LINE;
        bytes += size;
        int fits = label == 0 || (labelled && label > 0 && label <= MAX_LABEL && !memchr(line, '\n', (size_t)label));
        if (!fits || !whole(line + label, &rank, &number) || rank < 0 || rank >= ranks) {
            torn++;
            continue;
        }
        good++;
        reordered += number != next[rank];
        next[rank] = number + 1;
    }
    long missing = ranks * each - good;
    printf("%ld %ld %ld %ld %ld\n", good, torn, missing, reordered, bytes);
    return torn || missing || reordered;
}

/* sink DIR: reads stdin to its end and writes "bytes sum" into DIR/<rank>. The sum depends on the place of every byte. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "rank.h"

int main(int argc, char **argv)
{
    static unsigned char bytes[1 << 20];
    uint64_t total = 0, sum = 0, word = 0;
    unsigned have = 0;
    if (argc != 2)
        return 2;
    for (ssize_t size; (size = read(0, bytes, sizeof bytes)) > 0; total += (uint64_t)size) {
        ssize_t at = 0;
        for (; at < size && have; at++, have = (have + 1) % 8) {
            word |= (uint64_t)bytes[at] << (8 * have);
            if (have == 7)
                sum = sum * 31 + word, word = 0;
        }
        for (; at + 8 <= size; at += 8) {
            uint64_t next;
            memcpy(&next, bytes + at, 8);
            sum = sum * 31 + next;
        }
        for (; at < size; at++, have++)
            word |= (uint64_t)bytes[at] << (8 * have);
    }
    char path[4096];
    snprintf(path, sizeof path, "%s/%d", argv[1], own_rank());
    FILE *file = fopen(path, "w");
    if (!file)
        return 3;
    fprintf(file, "%llu %016llx\n", (unsigned long long)total, (unsigned long long)(sum * 31 + word));
    return fclose(file) ? 3 : 0;
}

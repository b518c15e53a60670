/* The second listing as it stands; only its callee is filled in. */
#include <stdio.h>
#include <string.h>

#include <scap.h>

static const char *const patterns[] = {"GET ", "HTTP/1.1", NULL};

static void MatchFound(const char *pattern, size_t at)
{
    printf("%s at %lu\n", pattern, (unsigned long)at);
}

static void search(const char *const *words, const char *data, size_t len, void (*found)(const char *, size_t))
{
    size_t at;

    for (; *words != NULL; words++)
        for (at = 0; at + strlen(*words) <= len; at++)
            if (memcmp(data + at, *words, strlen(*words)) == 0)
                found(*words, at);
}

void stream_process(stream_t *sd);

int main(void)
{
#include "pattern_search_main.inc"
    scap_close(sc);
    return 0;
}

#include "pattern_search_callback.inc"

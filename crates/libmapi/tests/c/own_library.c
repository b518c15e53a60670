/* A function library as a shared one: TALLY sums up packets and captured bytes. */
#include <mapi/function.h>
#include <stdlib.h>
#include <string.h>

struct tally {
    unsigned long long packets, bytes;
};

static int create(const mapi_argument_t *arguments, unsigned count, void **state)
{
    if (count > 0 && strcmp(arguments[0].text, "all") != 0)
        return 1;
    *state = calloc(1, sizeof(struct tally));
    return *state == NULL;
}

static int process(void *state, const struct mapipkt *packet)
{
    struct tally *tally = state;
    tally->packets++;
    tally->bytes += packet->caplen;
    return 1;
}

static void result(void *state, void *result)
{
    memcpy(result, state, sizeof(struct tally));
}

static const mapi_function_t functions[] = {
    {"TALLY", "sums up packets and bytes", "s", 0, sizeof(struct tally), create, process, result, free},
};

static const mapi_library_t library = {MAPI_LIBRARY_VERSION, "tallylib", functions, 1};

const mapi_library_t *mapi_library(void);
const mapi_library_t *mapi_library(void)
{
    return &library;
}

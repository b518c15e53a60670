/*
 * Pattern search: prints where in which stream each pattern occurs, across the boundaries of packets and chunks.
 * The second listing of the Scap paper (section 3.3.2), with the callee filled in.
 *
 *   pattern_search trace.pcap PATTERN...
 *
 * All patterns are looked for at once with an Aho-Corasick automaton: one table look-up per byte, however many
 * patterns there are. Where the automaton stands at the end of a chunk is all that has to be kept for a stream; it
 * is kept in the stream's user_state, so nothing has to be allocated for streams.
 */
#define _POSIX_C_SOURCE 200809L

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <scap.h>

static scap_t *sc;

/* State 0 is the start. next[256 * state + byte] is where a byte leads. */
struct automaton {
    uint32_t *next;
    uint32_t *fail;  /* the longest proper suffix of what was read that is a state, too */
    uint32_t *found; /* 1 + the pattern that ends in the state; 0: none */
    uint32_t *also;  /* the next state on the way of fail in which a pattern ends; 0: none */
    uint32_t states;
    char **patterns;
};

static struct automaton patterns;

typedef void match_function(const stream_t *sd, uint64_t end, const char *pattern);

static void *allocate(size_t count, size_t size)
{
    void *memory = calloc(count, size);

    if (memory == NULL) {
        fprintf(stderr, "out of memory\n");
        exit(EXIT_FAILURE);
    }
    return memory;
}

/* A tree of the patterns first; then, state by state from the start outwards, where failing leads, which makes
 * the tree a table that has an answer for every byte. */
static void build(struct automaton *a, char **words, int count)
{
    size_t room = 1;
    uint32_t *queue, first = 0, last = 0;
    int i, byte;

    for (i = 0; i < count; i++)
        room += strlen(words[i]);
    a->next = allocate(room * 256, sizeof *a->next);
    a->fail = allocate(room, sizeof *a->fail);
    a->found = allocate(room, sizeof *a->found);
    a->also = allocate(room, sizeof *a->also);
    a->states = 1;
    a->patterns = words;
    for (i = 0; i < count; i++) {
        const unsigned char *at;
        uint32_t state = 0;

        for (at = (const unsigned char *)words[i]; *at != 0; at++) {
            uint32_t *way = &a->next[256 * (size_t)state + *at];

            if (*way == 0)
                *way = a->states++;
            state = *way;
        }
        if (state != 0 && a->found[state] == 0)
            a->found[state] = (uint32_t)i + 1;
    }
    queue = allocate(room, sizeof *queue);
    for (byte = 0; byte < 256; byte++)
        if (a->next[byte] != 0)
            queue[last++] = a->next[byte];
    while (first < last) {
        uint32_t state = queue[first++];
        uint32_t fail = a->fail[state];

        a->also[state] = a->found[fail] != 0 ? fail : a->also[fail];
        for (byte = 0; byte < 256; byte++) {
            uint32_t *way = &a->next[256 * (size_t)state + byte];
            uint32_t other = a->next[256 * (size_t)fail + byte];

            if (*way == 0) {
                *way = other;
            } else {
                a->fail[*way] = other;
                queue[last++] = *way;
            }
        }
    }
    free(queue);
}

static void match_found(const stream_t *sd, uint64_t end, const char *pattern)
{
    char src[SCAP_ADDRESS_BYTES], dst[SCAP_ADDRESS_BYTES];

    scap_address_text(sd->hdr.src_ip, src, sizeof src);
    scap_address_text(sd->hdr.dst_ip, dst, sizeof dst);
    printf("%s %u %s %u %u %" PRIu64 " %s\n", src, (unsigned)sd->hdr.src_port, dst, (unsigned)sd->hdr.dst_port,
           (unsigned)sd->hdr.protocol, end - strlen(pattern), pattern);
}

static void search(stream_t *sd, const struct automaton *a, const char *data, size_t len, match_function *found)
{
    uint32_t state = (uint32_t)(uintptr_t)sd->user_state;
    size_t i;

    /* What is missing ends a match that had begun. */
    if (sd->missing > 0)
        state = 0;
    for (i = 0; i < len; i++) {
        uint32_t hit;

        state = a->next[256 * (size_t)state + (unsigned char)data[i]];
        for (hit = a->found[state] != 0 ? state : a->also[state]; hit != 0; hit = a->also[hit])
            found(sd, sd->offset + i + 1, a->patterns[a->found[hit] - 1]);
    }
    sd->user_state = (void *)(uintptr_t)state;
}

static void stream_process(stream_t *sd)
{
    search(sd, &patterns, sd->data, sd->len, match_found);
}

/* Ctrl-C ends the capture; what it has found until then is told as at its end. */
static void on_signal(int number)
{
    (void)number;
    scap_stop_capture(sc);
}

int main(int argc, char **argv)
{
    int failed;

    if (argc < 3) {
        fprintf(stderr, "usage: %s INTERFACE|FILE PATTERN...\n", argv[0]);
        return 2;
    }
    build(&patterns, argv + 2, argc - 2);
    sc = scap_create(argv[1], 512*1024*1024, SCAP_TCP_WAIT, 0);
    if (sc == NULL) {
        fprintf(stderr, "%s\n", scap_errbuf(NULL));
        return 2;
    }
    scap_dispatch_data(sc, stream_process);
    /* (signal() would take only the first one where it is that of System V.) */
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    failed = scap_start_capture(sc);
    if (failed)
        fprintf(stderr, "%s\n", scap_errbuf(sc));
    scap_close(sc);
    free(patterns.next);
    free(patterns.fail);
    free(patterns.found);
    free(patterns.also);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* Aho-Corasick: one look into a table per byte. Bytes that no pattern has are one class. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "nids.h"

#define LINE 16 /* elements of the table in a cache line */
#define FOUND INT32_MIN

struct automaton {
    /* By state (its first element) and class: the next state, with the sign set where a pattern ends there. */
    int32_t *table;
    uint32_t *first; /* by state: its first element in `outputs`, 0 if no pattern ends there */
    struct output {
        uint32_t id;
        uint32_t next;
    } *outputs; /* from 1 on */
    size_t stride, states;
    int only; /* the byte that all patterns begin with, or negative */
    unsigned char classes[256];
};

static void classify(struct automaton *made, const struct pattern *patterns, size_t count)
{
    size_t classes = 1;
    made->only = isalpha(patterns[0].bytes[0]) ? -1 : patterns[0].bytes[0];
    for (size_t i = 0; i < count; i++) {
        if (patterns[i].bytes[0] != made->only)
            made->only = -1;
        for (size_t at = 0; at < patterns[i].length; at++) {
            int byte = tolower(patterns[i].bytes[at]);
            if (made->classes[byte] == 0) {
                made->classes[byte] = (unsigned char)classes;
                made->classes[toupper(byte)] = (unsigned char)classes++;
            }
        }
    }
    made->stride = (classes + LINE - 1) / LINE * LINE;
}

/* The state of a pattern's end, with the states that lead to it. */
static size_t insert(struct automaton *made, const struct pattern *pattern)
{
    size_t state = 0;
    for (size_t at = 0; at < pattern->length; at++) {
        int32_t *next = &made->table[state * made->stride + made->classes[pattern->bytes[at]]];
        if (*next == 0)
            *next = (int32_t)made->states++;
        state = (size_t)*next;
    }
    return state;
}

/* States by their distance from the first one: what is missing in one is as in the longest suffix that is a state. */
static void complete(struct automaton *made)
{
    uint32_t *suffix = allocated(made->states * sizeof *suffix);
    uint32_t *queue = allocated(made->states * sizeof *queue);
    size_t length = 1;
    suffix[0] = queue[0] = 0;
    for (size_t turn = 0; turn < length; turn++) {
        uint32_t state = queue[turn];
        int32_t *row = made->table + state * made->stride;
        const int32_t *shorter = made->table + suffix[state] * made->stride;
        uint32_t *end = &made->first[state];
        while (*end != 0)
            end = &made->outputs[*end].next;
        if (state != 0)
            *end = made->first[suffix[state]];
        for (size_t class = 0; class < made->stride; class++) {
            if (row[class] == 0) {
                row[class] = shorter[class];
            } else {
                suffix[row[class]] = state == 0 ? 0 : (uint32_t)shorter[class];
                queue[length++] = (uint32_t)row[class];
            }
        }
    }
    free(suffix);
    free(queue);
    for (size_t at = 0; at < made->states * made->stride; at++) {
        size_t state = (size_t)made->table[at];
        made->table[at] = (int32_t)(state * made->stride) | (made->first[state] ? FOUND : 0);
    }
}

struct automaton *automaton_new(const struct pattern *patterns, size_t count)
{
    struct automaton *made = allocated(sizeof *made);
    classify(made, patterns, count);
    size_t most = 1;
    for (size_t i = 0; i < count; i++)
        most += patterns[i].length;
    if (most > (size_t)INT32_MAX / made->stride)
        return NULL;
    made->states = 1;
    made->table = allocated(most * made->stride * sizeof *made->table);
    made->first = allocated(most * sizeof *made->first);
    made->outputs = allocated((count + 1) * sizeof *made->outputs);
    for (size_t i = 0; i < count; i++) {
        uint32_t *first = &made->first[insert(made, &patterns[i])];
        made->outputs[i + 1] = (struct output){patterns[i].id, *first};
        *first = (uint32_t)i + 1;
    }
    complete(made);
    return made;
}

void automaton_search(const struct automaton *automaton, const unsigned char *text, size_t length,
                      void (*found)(void *user, uint32_t id), void *user)
{
    const int32_t *table = automaton->table;
    const unsigned char *classes = automaton->classes, *end = text + length;
    int64_t state = 0, stop = automaton->only >= 0;
    while (text < end) {
        if (stop && state == 0 && (text = memchr(text, automaton->only, (size_t)(end - text))) == NULL)
            return;
        do
            state = table[state + classes[*text++]];
        while (state >= stop && text < end);
        if (state >= 0)
            continue;
        state &= ~FOUND;
        for (uint32_t i = automaton->first[(size_t)state / automaton->stride]; i != 0; i = automaton->outputs[i].next)
            found(user, automaton->outputs[i].id);
    }
}

size_t automaton_bytes(const struct automaton *automaton)
{
    return automaton->states * automaton->stride * sizeof *automaton->table;
}

/* Aho-Corasick: one look into a table per byte. Bytes that no pattern has are one class. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "nids.h"

struct automaton {
    void *table;     /* by state and class: the next state */
    bool narrow;     /* whether elements have 16 bits, otherwise 32 */
    int only;        /* the byte that all patterns begin with, or negative */
    uint32_t ends;   /* the first state in which a pattern ends; in all behind it some do, too */
    uint32_t *first; /* by state from `ends` on: its first element in `outputs` */
    struct output {
        uint32_t id;
        uint32_t next;
    } *outputs; /* from 1 on */
    size_t stride, states;
    unsigned char classes[256];
};

/* The automaton as it is made: states are numbered as patterns come. */
struct draft {
    uint32_t *table, *first, *queue;
    size_t states;
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
    made->stride = classes;
}

/* The state of a pattern's end, with the states that lead to it. */
static size_t insert(const struct automaton *made, struct draft *draft, const struct pattern *pattern)
{
    size_t state = 0;
    for (size_t at = 0; at < pattern->length; at++) {
        uint32_t *next = &draft->table[state * made->stride + made->classes[pattern->bytes[at]]];
        if (*next == 0)
            *next = (uint32_t)draft->states++;
        state = *next;
    }
    return state;
}

/* States by their distance from the first one: what is missing in one is as in the longest suffix that is a state. */
static void complete(const struct automaton *made, struct draft *draft)
{
    uint32_t *suffix = allocated(draft->states * sizeof *suffix);
    size_t length = 1;
    draft->queue = allocated(draft->states * sizeof *draft->queue);
    for (size_t turn = 0; turn < length; turn++) {
        uint32_t state = draft->queue[turn];
        uint32_t *row = draft->table + state * made->stride;
        const uint32_t *shorter = draft->table + suffix[state] * made->stride;
        uint32_t *end = &draft->first[state];
        while (*end != 0)
            end = &made->outputs[*end].next;
        if (state != 0)
            *end = draft->first[suffix[state]];
        for (size_t class = 0; class < made->stride; class++) {
            if (row[class] == 0) {
                row[class] = shorter[class];
            } else {
                suffix[row[class]] = state == 0 ? 0 : shorter[class];
                draft->queue[length++] = row[class];
            }
        }
    }
    free(suffix);
}

/* The table, by states in the draft's order but for those in which a pattern ends, which are last: what is near the first state, and
 * looked at most, lies together. */
static void lay_out(struct automaton *made, const struct draft *draft)
{
    uint32_t *numbers = allocated(draft->states * sizeof *numbers), number = 0;
    made->states = draft->states;
    made->narrow = made->states <= UINT16_MAX;
    made->table = allocated(automaton_bytes(made));
    for (int is_end = 0; is_end <= 1; is_end++) {
        if (is_end)
            made->ends = number;
        for (size_t turn = 0; turn < draft->states; turn++)
            if ((draft->first[draft->queue[turn]] != 0) == is_end)
                numbers[draft->queue[turn]] = number++;
    }
    made->first = allocated((number - made->ends) * sizeof *made->first);
    for (size_t state = 0; state < draft->states; state++) {
        const uint32_t *row = draft->table + state * made->stride;
        size_t to = numbers[state] * made->stride;
        for (size_t class = 0; class < made->stride; class++) {
            if (made->narrow)
                ((uint16_t *)made->table)[to + class] = (uint16_t)numbers[row[class]];
            else
                ((uint32_t *)made->table)[to + class] = numbers[row[class]];
        }
        if (numbers[state] >= made->ends)
            made->first[numbers[state] - made->ends] = draft->first[state];
    }
    free(numbers);
}

struct automaton *automaton_new(const struct pattern *patterns, size_t count)
{
    struct automaton *made = allocated(sizeof *made);
    classify(made, patterns, count);
    size_t most = 1;
    for (size_t i = 0; i < count; i++)
        most += patterns[i].length;
    if (most > UINT32_MAX / made->stride)
        return NULL;
    struct draft draft = {.states = 1};
    draft.table = allocated(most * made->stride * sizeof *draft.table);
    draft.first = allocated(most * sizeof *draft.first);
    made->outputs = allocated((count + 1) * sizeof *made->outputs);
    for (size_t i = 0; i < count; i++) {
        uint32_t *first = &draft.first[insert(made, &draft, &patterns[i])];
        made->outputs[i + 1] = (struct output){patterns[i].id, *first};
        *first = (uint32_t)i + 1;
    }
    complete(made, &draft);
    lay_out(made, &draft);
    free(draft.table);
    free(draft.first);
    free(draft.queue);
    return made;
}

/* For elements of one size. */
static inline __attribute__((always_inline)) void search(const struct automaton *automaton, bool narrow, const unsigned char *text,
                                                         size_t length, void (*found)(void *user, uint32_t id), void *user)
{
    const uint16_t *narrow_table = automaton->table;
    const uint32_t *wide_table = automaton->table;
    const unsigned char *classes = automaton->classes, *end = text + length;
    /* The first state is left by a search for the byte, if there is one. */
    uint32_t state = 0, stop = automaton->only >= 0, ends = automaton->ends;
    size_t stride = automaton->stride;
    while (text < end) {
        if (stop && state == 0 && (text = memchr(text, automaton->only, (size_t)(end - text))) == NULL)
            return;
        do {
            size_t at = state * stride + classes[*text++];
            state = narrow ? narrow_table[at] : wide_table[at];
        } while (state - stop < ends - stop && text < end);
        if (state < ends)
            continue;
        for (uint32_t i = automaton->first[state - ends]; i != 0; i = automaton->outputs[i].next)
            found(user, automaton->outputs[i].id);
    }
}

void automaton_search(const struct automaton *automaton, const unsigned char *text, size_t length,
                      void (*found)(void *user, uint32_t id), void *user)
{
    if (automaton->narrow)
        search(automaton, true, text, length, found, user);
    else
        search(automaton, false, text, length, found, user);
}

size_t automaton_bytes(const struct automaton *automaton)
{
    return automaton->states * automaton->stride * (automaton->narrow ? sizeof(uint16_t) : sizeof(uint32_t));
}

/* Network intrusion detection by rules in Snort's syntax: what its parts have in common. */
#ifndef NIDS_H
#define NIDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes that a payload must have, or must not have. */
struct content {
    unsigned char *bytes;
    size_t length;
    size_t offset;
    size_t depth; /* 0: to the end */
    bool nocase;
    bool negated;
    bool after; /* behind the content before */
};

struct range {
    uint16_t low, high;
};

/* None are any. */
struct ports {
    struct range *ranges;
    size_t count;
};

enum { SOURCE, DESTINATION };

struct rule {
    unsigned sid;
    uint8_t protocol; /* IPPROTO_TCP or IPPROTO_UDP */
    struct ports ports[2];
    struct content *contents;
    size_t count;
    size_t longest;        /* the content that automata search for */
    unsigned long checked; /* the number of the last packet that it was compared with */
};

struct rules {
    struct rule *list;
    size_t count;
    size_t left_out; /* without a content, or of another protocol */
};

/* Reads a file of rules; ends the program where one is wrong. */
struct rules rules_read(const char *path);
bool ports_have(const struct ports *ports, uint16_t port);
bool rule_matches(const struct rule *rule, const unsigned char *payload, size_t length);

/* A deterministic Aho-Corasick automaton that ignores case. */
struct automaton;

struct pattern {
    const unsigned char *bytes;
    size_t length;
    uint32_t id;
};

struct automaton *automaton_new(const struct pattern *patterns, size_t count);
/* Calls `found` for each pattern that ends in the text, as often as it does. */
void automaton_search(const struct automaton *automaton, const unsigned char *text, size_t length,
                      void (*found)(void *user, uint32_t id), void *user);
size_t automaton_bytes(const struct automaton *automaton);

/* Memory of zeros. */
void *allocated(size_t bytes);
/* Makes room for one more element of an array whose room is doubled when it is used up. */
void *grown(void *array, size_t count, size_t size);

#endif

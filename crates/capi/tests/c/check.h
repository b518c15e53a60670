/* Checks that say where they failed; a program ends with the number of those that did. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <string.h>

#include <scap.h>

static int failures;

#define CHECK(condition)                                                                                          \
    do {                                                                                                          \
        if (!(condition)) {                                                                                       \
            fprintf(stderr, "%s:%d: not so: %s (errbuf: %s)\n", __FILE__, __LINE__, #condition, scap_errbuf(NULL)); \
            failures++;                                                                                           \
        }                                                                                                         \
    } while (0)

/* Whether the message of the last failure says where it happened and what to do. */
#define CHECK_MESSAGE(sc, where, what)                                    \
    do {                                                                  \
        CHECK(strncmp(scap_errbuf(sc), where ": ", strlen(where) + 2) == 0); \
        CHECK(strstr(scap_errbuf(sc), what) != NULL);                     \
        CHECK(strstr(scap_errbuf(sc), "; hint: ") != NULL);               \
    } while (0)

#endif

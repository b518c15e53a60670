/* Functions of a program's own [ours]: a library of them is in the program (mapi_add_library()) or in a shared library that it
 * loads (mapi_load_library()), which exports
 *
 *   const mapi_library_t *mapi_library(void);
 *
 * They run in the program, on the packets that the functions before them pass, in a thread of libmapi, one for each flow. So they
 * stand at the end of a flow: behind them come others of the kind, and TO_BUFFER. A function of the sensor behind them, and one
 * that takes their result (BUCKET, STATS, RES2FILE ...), is refused (7000, 6147).
 */
#ifndef _MAPI_FUNCTION_H
#define _MAPI_FUNCTION_H 1

#include <mapi.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MAPI_LIBRARY_VERSION 1

/* An argument: a text (letter s), or a number (i, l). */
typedef struct mapi_argument {
    const char *text;
    long long number;
} mapi_argument_t;

typedef struct mapi_function {
    const char *name;
    const char *descr;
    const char *argdescr;      /* a letter for each argument: s, i, l */
    unsigned required;         /* arguments that must be given */
    unsigned result_size;      /* bytes of its result; 0: it has none */
    /* Begins it in a flow, whose state it gives; its arguments are there during the call only. Returns 0, or the number of the
     * argument that is wrong. NULL: it takes them all, and has no state. */
    int (*create)(const mapi_argument_t *arguments, unsigned count, void **state);
    /* A packet, which is there during the call only. Returns whether it is passed on. */
    int (*process)(void *state, const struct mapipkt *packet);
    /* Writes its result, result_size bytes aligned as any type. Not while it processes a packet. */
    void (*result)(void *state, void *result);
    /* Ends it. */
    void (*destroy)(void *state);
} mapi_function_t;

typedef struct mapi_library {
    unsigned version;          /* MAPI_LIBRARY_VERSION */
    const char *name;
    const mapi_function_t *functions;
    unsigned count;
} mapi_library_t;

#ifdef __cplusplus
}
#endif

#endif

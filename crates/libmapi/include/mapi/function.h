/* Functions that run in the program [ours]. A library of functions is part of the program (mapi_add_library()), or a shared library
 * (mapi_load_library()) that exports
 *
 *   const mapi_library_t *mapi_library(void);
 *
 * The functions process the packets that the preceding functions pass, in one thread of libmapi per flow. They must come last in a flow:
 * only further functions of the program and TO_BUFFER may follow. A function of the sensor after them, or one that reads their results
 * (BUCKET, STATS, RES2FILE ...), is refused (7000, 6147).
 */
#ifndef _MAPI_FUNCTION_H
#define _MAPI_FUNCTION_H 1

#include <mapi.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MAPI_LIBRARY_VERSION 1

/* An argument: text (letter s), or a number (i, l). */
typedef struct mapi_argument {
    const char *text;
    long long number;
} mapi_argument_t;

typedef struct mapi_function {
    const char *name;
    const char *descr;
    const char *argdescr;      /* a letter per argument: s, i, l */
    unsigned required;         /* number of mandatory arguments */
    unsigned result_size;      /* size of its result in bytes; 0: none */
    /* Applies the function to a flow and sets *state. The arguments are valid during the call only. Returns 0, or the number of an
     * invalid argument. May be NULL if the function accepts all arguments and has no state. */
    int (*create)(const mapi_argument_t *arguments, unsigned count, void **state);
    /* Processes a packet, which is valid during the call only. Returns whether to pass it on. */
    int (*process)(void *state, const struct mapipkt *packet);
    /* Writes the result: result_size bytes, aligned for any type. Never called during process(). */
    void (*result)(void *state, void *result);
    /* Frees the state. */
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

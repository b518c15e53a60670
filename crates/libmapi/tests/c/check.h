/* What the test programs have in common. */
#include <mapi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Ends the program with the last error, unless a call has succeeded. */
#define OK(call) \
    do { \
        if (!(call)) \
            failed(#call, __LINE__); \
    } while (0)

/* A call fails with this number. */
#define FAILS(call, number) \
    do { \
        if ((call)) \
            failed("not refused: " #call, __LINE__); \
        expect(number, #call, __LINE__); \
    } while (0)

MAPI_UNUSED static void failed(const char *what, int line)
{
    int number;
    char text[MAPI_ERRORSTR_LENGTH];
    mapi_read_error(&number, text);
    fprintf(stderr, "line %d: %s: %d %s\n", line, what, number, text);
    exit(1);
}

MAPI_UNUSED static void expect(int number, const char *what, int line)
{
    int found;
    char text[MAPI_ERRORSTR_LENGTH];
    mapi_read_error(&found, text);
    if (found != number || text[0] == '\0') {
        fprintf(stderr, "line %d: %s: %d \"%s\", not %d\n", line, what, found, text, number);
        exit(1);
    }
    mapi_read_error(&found, text);
    if (found != 0 || text[0] != '\0') {
        fprintf(stderr, "line %d: the error was not cleared\n", line);
        exit(1);
    }
}

/* Waits until a flow's trace has been read. */
MAPI_UNUSED static void finish(int fd)
{
    mapi_flow_info_t info;
    do {
        usleep(10000);
        OK(mapi_get_flow_info(fd, &info) == 0);
    } while (info.status != FLOW_FINISHED);
}

MAPI_UNUSED static void *result(int fd, int fid)
{
    mapi_results_t *result = mapi_read_results(fd, fid);
    OK(result != NULL && result->res != NULL && result->ts != 0);
    return result->res;
}

MAPI_UNUSED static unsigned long long number(int fd, int fid)
{
    return *(unsigned long long *)result(fd, fid);
}

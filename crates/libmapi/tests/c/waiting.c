/* A function that waits for its results, on several sensors: which members have one, with each line that comes. argv: scope */
#include "check.h"
#include <mapi/hashsamp.h>

int main(int argc, char *argv[])
{
    int fd, size, at;
    mapi_results_t *results;
    if (argc != 2)
        return 2;
    OK((fd = mapi_create_flow(argv[1])) > 0 && (size = mapi_get_scope_size(fd)) > 1);
    OK(mapi_apply_function(fd, "HASHSAMP", 1024, 1) == 1 && mapi_connect(fd) == 0);
    puts("connected");
    fflush(stdout);
    while (getchar() == '\n') {
        OK((results = mapi_read_results(fd, 1)) != NULL);
        for (at = 0; at < size; at++) {
            OK(results[at].res != NULL && (results[at].size == 0 || results[at].size == sizeof(struct sample)));
            printf("%d", results[at].size > 0);
        }
        puts("");
        fflush(stdout);
    }
    OK(mapi_close_flow(fd) == 0);
    return 0;
}

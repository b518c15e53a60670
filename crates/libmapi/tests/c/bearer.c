/* A program of somebody who has nothing but a credential for counters. argv: a device, or devices of several sensors, and the
 * credential, which belongs to one flow here; "all": to all of them */
#include "check.h"
#include <string.h>

int main(int argc, char **argv)
{
    int fd, other, fid, member, size, is_all = argc > 3 && strcmp(argv[3], "all") == 0;
    mapi_results_t *results;
    if (argc < 3)
        return 2;
    if (is_all)
        OK(mapi_set_authdata(0, argv[2]) == 0);
    OK((fd = mapi_create_flow(argv[1])) > 0 && (other = mapi_create_flow(argv[1])) > 0 && fd != other);
    if (!is_all) {
        FAILS(mapi_apply_function(fd, "PKT_COUNTER") != -1, 8003);
        FAILS(mapi_connect(fd) != -1, 8003);
        FAILS(mapi_set_authdata(fd, "something else") != -1, 8003);
        OK(mapi_set_authdata(fd, argv[2]) == 0);
        /* It is of that flow alone. */
        FAILS(mapi_apply_function(other, "PKT_COUNTER") != -1, 8003);
    }
    FAILS(mapi_apply_function(fd, "NO_SUCH") != -1, 6144);
    OK((fid = mapi_apply_function(fd, "PKT_COUNTER")) == 1);
    OK(mapi_connect(fd) == 0);
    FAILS(mapi_set_authdata(fd, argv[2]) != -1, 3081);
    puts("connected");
    fflush(stdout);
    getchar();
    finish(fd);
    OK((results = mapi_read_results(fd, fid)) != NULL);
    size = mapi_get_scope_size(fd);
    for (member = 0; member < size; member++)
        printf("%llu\n", *(unsigned long long *)results[member].res);
    OK(mapi_close_flow(other) == 0 && mapi_close_flow(fd) == 0);
    return 0;
}

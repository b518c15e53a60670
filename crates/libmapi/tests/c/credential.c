/* A program asks with credentials. argv: a device that holds, a credential for counters alone, a damaged one. */
#include "check.h"

int main(int argc, char **argv)
{
    int fd, other;
    if (argc != 4)
        return 2;
    FAILS(mapi_set_authdata(0, NULL) != -1, 7002);
    /* A flow with one of its own, and others without. */
    OK((fd = mapi_create_flow(argv[1])) > 0 && (other = mapi_create_flow(argv[1])) > 0);
    FAILS(mapi_set_authdata(fd, argv[3]) != -1, 8003);
    OK(mapi_set_authdata(fd, argv[2]) == 0);
    FAILS(mapi_apply_function(fd, "TO_BUFFER") != -1, 8003);
    FAILS(mapi_apply_function(fd, "BYTE_COUNTER") != -1, 8003);
    OK(mapi_apply_function(fd, "PKT_COUNTER") == 1 && mapi_connect(fd) == 0);
    FAILS(mapi_set_authdata(fd, argv[2]) != -1, 3081);
    OK(mapi_apply_function(other, "TO_BUFFER") == 1 && mapi_connect(other) == 0);
    /* All flows from now on. */
    OK(mapi_set_authdata(0, argv[3]) == 0);
    FAILS(mapi_create_flow(argv[1]) != -1, 8003);
    OK(mapi_set_authdata(0, argv[2]) == 0);
    OK(mapi_close_flow(other) == 0 && (other = mapi_create_flow(argv[1])) > 0);
    FAILS(mapi_apply_function(other, "TO_BUFFER") != -1, 8003);
    OK(mapi_apply_function(other, "PKT_COUNTER") == 1);
    /* One flow at once. */
    FAILS(mapi_connect(other) != -1, 8003);
    OK(mapi_close_flow(fd) == 0 && mapi_connect(other) == 0);
    return 0;
}

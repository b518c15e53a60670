/* The members of a scope, with each line that comes. argv: scope, a device of this machine, "pushed": numbers
 * come by themselves */
#include "check.h"
#include <sys/wait.h>

static const char *const STATES[] = {"ok", "down", "refused", "late"};

int main(int argc, char *argv[])
{
    int fd, local, fid, size, at, child, status, generation;
    char name[400];
    mapi_member_info_t info;
    mapi_results_t *results;
    if (argc < 3)
        return 2;
    OK((local = mapi_create_flow(argv[2])) > 0);
    OK((at = mapi_create_flow("held, held")) > 0 && mapi_is_remote(at) == 0 && mapi_get_scope_size(at) == 2);
    OK(mapi_close_flow(at) == 0);
    OK(mapi_get_scope_size(local) == 1 && mapi_is_remote(local) == 0);
    OK(mapi_get_member_info(local, 0, &info) == 0 && info.state == MAPI_MEMBER_OK && info.generation == 1);
    OK((fd = mapi_create_flow(argv[1])) > 0);
    OK(mapi_is_remote(fd) == 1 && (size = mapi_get_scope_size(fd)) > 1);
    FAILS(mapi_get_member_info(fd, size, &info) != -1, 7002);
    FAILS(mapi_get_member_info(fd, -1, &info) != -1, 7002);
    FAILS(mapi_get_member_info(fd, 0, NULL) != -1, 7003);
    FAILS(mapi_get_member_info(99, 0, &info) != -1, 6145);
    FAILS(mapi_apply_function(fd, "TO_FILE", MFF_PCAP, "x.pcap", 0ULL) != -1, 6155);
    FAILS(mapi_apply_function(fd, "SYNC", "99") != -1, 7001);
    OK((fid = mapi_apply_function(fd, "PKT_COUNTER")) == 1);
    OK(mapi_connect(fd) == 0);
    OK(argc < 4 || mapi_set_option(fd, MAPI_PUSH_INTERVAL, 20) == 0);
    /* One without rights. */
    if ((child = fork()) == 0) {
        setenv("FLOWGAUGE_IDENTITY", "stranger", 1);
        OK((fd = mapi_create_flow(argv[1])) > 0);
        FAILS(mapi_apply_function(fd, "PKT_COUNTER") != -1, 8003);
        FAILS(mapi_set_authdata(fd, "me") != -1, 8003);
        FAILS(mapi_connect(fd) != -1, 8003);
        _exit(0);
    }
    OK(waitpid(child, &status, 0) == child && status == 0);
    /* A child has none of it, and takes nothing from its parent. */
    child = fork();
    if (child == 0) {
        FAILS(mapi_read_results(fd, fid) != NULL, 6145);
        OK((fd = mapi_create_flow(argv[1])) > 0 && mapi_apply_function(fd, "PKT_COUNTER") == 1);
        OK(mapi_connect(fd) == 0 && mapi_read_results(fd, 1) != NULL && mapi_close_flow(fd) == 0);
        _exit(0);
    }
    OK(waitpid(child, &status, 0) == child && status == 0);
    /* Nobody is there, or has it, or may have it. */
    FAILS(mapi_create_flow("127.0.0.1:1:held, 127.0.0.1:1:other") != -1, 5123);
    FAILS(mapi_create_flow("nowhere/*") != -1, 3200);
    FAILS(mapi_create_flow("a:b:c") != -1, 3200);
    FAILS(mapi_create_flow("held, ") != -1, 3200);
    snprintf(name, sizeof name, "%.*s", (int)strcspn(argv[1], ","), argv[1]);
    strcpy(strrchr(name, ':'), ":nowhere");
    FAILS(mapi_create_flow(name) != -1, 3200);
    strcat(name, ", 127.0.0.1:1:held");
    FAILS(mapi_create_flow(name) != -1, 3200);
    while (getchar() == '\n') {
        OK((results = mapi_read_results(fd, fid)) != NULL);
        for (at = 0; at < size; at++) {
            OK(results[at].res != NULL && (results[at].ts > 0) == (results[at].size > 0));
            OK(mapi_get_member_info(fd, at, &info) == 0 && info.since > 0 && info.name[0] != '\0');
            generation = mapi_get_result_generation(fd, fid, at);
            OK((generation > 0) == (results[at].size > 0) && generation <= (int)info.generation);
            OK((info.state == MAPI_MEMBER_OK) == (info.reason[0] == '\0'));
            printf("%s %u %llu, ", STATES[info.state], info.generation, *(unsigned long long *)results[at].res);
        }
        printf("%d\n", mapi_is_sensor_down(fd));
        fflush(stdout);
    }
    OK(mapi_close_flow(fd) == 0 && mapi_close_flow(local) == 0);
    return 0;
}

/* Counts streams and segments with signatures: each in the packets as they are, and in what streams are together (COOKING).
 *
 *   signatures trace.pcap 'GET /' 'HTTP/1.1 404' '|0d 0a 0d 0a|'
 */
#include <mapi.h>
#include <stdio.h>
#include <unistd.h>

#define MOST 32

static int fail(const char *what)
{
    char text[MAPI_ERRORSTR_LENGTH];
    int number;
    mapi_read_error(&number, text);
    fprintf(stderr, "%s: %d %s\n", what, number, text);
    return 1;
}

static int search(const char *device, const char *signature, int cooks, int *fid)
{
    int fd = mapi_create_flow(device);
    if (fd < 0)
        return -1;
    if (mapi_apply_function(fd, "BPF_FILTER", "tcp") < 0)
        return -1;
    if (cooks && mapi_apply_function(fd, "COOKING", 32768, 30, 0, BOTH_SIDE) < 0)
        return -1;
    if (mapi_apply_function(fd, "STR_SEARCH", signature, 0, 0) < 0)
        return -1;
    *fid = mapi_apply_function(fd, "PKT_COUNTER");
    return *fid < 0 || mapi_connect(fd) < 0 ? -1 : fd;
}

int main(int argc, char *argv[])
{
    int fd[MOST][2], fid[MOST][2], at, cooks;
    mapi_flow_info_t info;
    char *device;
    if (argc < 3 || argc - 2 > MOST) {
        fprintf(stderr, "usage: %s TRACE SIGNATURE...\n", argv[0]);
        return 2;
    }
    device = mapi_create_offline_device(argv[1], MFF_PCAP);
    if (device == NULL)
        return fail(argv[1]);
    for (at = 0; at < argc - 2; at++)
        for (cooks = 0; cooks < 2; cooks++) {
            fd[at][cooks] = search(device, argv[at + 2], cooks, &fid[at][cooks]);
            if (fd[at][cooks] < 0)
                return fail(argv[at + 2]);
        }
    if (mapi_start_offline_device(device) < 0)
        return fail(device);
    do {
        usleep(10000);
        if (mapi_get_flow_info(fd[0][0], &info) < 0)
            return fail("mapi_get_flow_info");
    } while (info.status != FLOW_FINISHED);
    for (at = 0; at < argc - 2; at++) {
        unsigned long long count[2];
        for (cooks = 0; cooks < 2; cooks++) {
            mapi_results_t *result = mapi_read_results(fd[at][cooks], fid[at][cooks]);
            if (result == NULL)
                return fail("mapi_read_results");
            count[cooks] = *(unsigned long long *)result->res;
            mapi_close_flow(fd[at][cooks]);
        }
        printf("%8llu segments %8llu pieces of streams: %s\n", count[0], count[1], argv[at + 2]);
    }
    return mapi_delete_offline_device(device) < 0 ? fail("mapi_delete_offline_device") : 0;
}

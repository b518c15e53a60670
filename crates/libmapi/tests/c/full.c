/* Files on a full disk end their flow alone, which says why. argv: trace, folder on a small disk */
#include "check.h"

static char path[300];

static const char *in(const char *folder, const char *name)
{
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

/* What a flow answers whose file cannot be written. */
static void fails(int fd, int fid)
{
    mapi_flow_info_t info;
    mapi_function_info_t function;
    char text[MAPI_ERRORSTR_LENGTH];
    int number, tries;
    for (tries = 0; mapi_get_flow_info(fd, &info) == 0 && tries < 1000; tries++)
        usleep(10000);
    OK(mapi_read_error(&number, text) == 0);
    if (number != 5123 || strstr(text, "space") == NULL)
        failed(text, __LINE__);
    FAILS(mapi_read_results(fd, fid) != NULL, 5123);
    FAILS(mapi_get_function_info(fd, 1, &function) == 0, 5123);
    OK(mapi_close_flow(fd) == 0);
}

int main(int argc, char *argv[])
{
    int file, results, other, fid;
    char *device;
    if (argc != 3)
        return 2;
    device = mapi_create_offline_device(argv[1], MFF_PCAP);
    OK(device != NULL);
    file = mapi_create_flow(device);
    OK(mapi_apply_function(file, "PKT_COUNTER") == 1);
    fid = mapi_apply_function(file, "TO_FILE", MFF_PCAP, in(argv[2], "all.pcap"), 0ULL);
    OK(fid == 2 && mapi_connect(file) == 0);
    results = mapi_create_flow(device);
    OK(mapi_apply_function(results, "PKT_COUNTER") == 1);
    OK(mapi_apply_function(results, "RES2FILE", "1", "1", "packets", in(argv[2], "each.txt"), "0", 0) == 2);
    OK(mapi_connect(results) == 0);
    other = mapi_create_flow(device);
    OK(mapi_apply_function(other, "PKT_COUNTER") == 1 && mapi_connect(other) == 0);
    OK(mapi_start_offline_device(device) == 0);
    finish(other);
    printf("counted %llu\n", number(other, 1));
    fails(file, fid);
    fails(results, 1);
    OK(mapi_close_flow(other) == 0 && mapi_delete_offline_device(device) == 0);
    return 0;
}

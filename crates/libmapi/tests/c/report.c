/* Exports flows. argv: trace, collector as host:port */
#include "check.h"
#include <mapi/ipfixlib.h>

static unsigned long long export(const char *trace, const char *format, const char *to, const char *keys, const char *values)
{
    unsigned long long records;
    int fd = mapi_create_offline_flow(trace, MFF_PCAP);
    int fid = mapi_apply_function(fd, "FLOW_REPORT", format, to, keys, values);
    OK(fid == 1 && mapi_apply_function(fd, "PKT_COUNTER") == 2);
    OK(mapi_connect(fd) == 0);
    finish(fd);
    records = number(fd, fid);
    OK(records > 100 && number(fd, 2) > records);
    OK(mapi_close_flow(fd) == 0);
    return records;
}

int main(int argc, char *argv[])
{
    int fd;
    if (argc != 3)
        return 2;
    fd = mapi_create_offline_flow(argv[1], MFF_PCAP);
    FAILS(mapi_apply_function(fd, "FLOW_REPORT", "NETFLOW_V7", "SHMEM") != -1, 7001);
    FAILS(mapi_apply_function(fd, "FLOW_REPORT", "IPFIX", "somewhere") != -1, 7002);
    FAILS(mapi_apply_function(fd, "FLOW_REPORT", "IPFIX", "file:/no/such/folder/x") != -1, 6155);
    FAILS(mapi_apply_function(fd, "FLOW_REPORT", "IPFIX", "host.invalid:2055") != -1, 7002);
    FAILS(mapi_apply_function(fd, "FLOW_REPORT", "IPFIX", argv[2], "sourceColour", "") != -1, 7003);
    FAILS(mapi_apply_function(fd, "FLOW_REPORT", "IPFIX", argv[2], "", "sourceIPv4Address") != -1, 7004);
    FAILS(mapi_apply_function(fd, "FLOW_REPORT", "NETFLOW_V5", argv[2], "sourceIPv4Address", "") != -1, 7003);
    OK(mapi_close_flow(fd) == 0);
    printf("file %llu\n", export(argv[1], IPFIXLIB_IPFIX, "file:flows.ipfix", "", ""));
    printf("keys %llu\n", export(argv[1], IPFIXLIB_IPFIX, "file:ports.ipfix", "destinationTransportPort", "octetDeltaCount,vlanId"));
    printf("five %llu\n", export(argv[1], IPFIXLIB_NETFLOW_V5, argv[2], "", ""));
    printf("nine %llu\n", export(argv[1], IPFIXLIB_NETFLOW_V9, argv[2], "", ""));
    printf("ten %llu\n", export(argv[1], IPFIXLIB_IPFIX, argv[2], "", ""));
    fd = mapi_create_offline_flow(argv[1], MFF_PCAP);
    OK(mapi_apply_function(fd, "FLOW_REPORT") == 1 && mapi_connect(fd) == 0);
    finish(fd);
    printf("counted %llu\n", number(fd, 1));
    return mapi_close_flow(fd);
}

/* Each call with bad arguments and in a wrong state. argv: a device that holds. */
#include "check.h"
#include <mapi/pktinfo.h>
#include <mapi/res2file.h>
#include <mapi/topx.h>

static void handler(const struct mapipkt *packet)
{
    (void)packet;
}

static void before_any_flow(void)
{
    mapi_flow_info_t flow;
    mapi_function_info_t function;
    FAILS(mapi_connect(-13141) >= 0, 6141);
    FAILS(mapi_apply_function(1, "PKT_COUNTER") != -1, 6141);
    FAILS(mapi_read_results(1, 1) != NULL, 6141);
    FAILS(mapi_get_next_pkt(1, 1) != NULL, 6141);
    FAILS(mapi_loop(1, 1, 1, handler) >= 0, 6141);
    FAILS(mapi_close_flow(1) >= 0, 6141);
    FAILS(mapi_get_scope_size(1) != -1, 6141);
    FAILS(mapi_is_remote(1) != -1, 6141);
    FAILS(mapi_get_flow_info(1, &flow) != -1, 6141);
    FAILS(mapi_get_next_flow_info(0, &flow) != -1, 6149);
    FAILS(mapi_get_function_info(1, 1, &function) != -1, 6141);
    OK(mapi_read_error(NULL, NULL) == -1);
}

static void devices(const char *device)
{
    char unknown[] = "nowhere";
    mapi_device_info_t info;
    struct mapi_stat stat;
    int id = 0, found = 0;
    FAILS(mapi_create_flow("nowhere") != -1, 3200);
    FAILS(mapi_create_flow(NULL) != -1, 6151);
    FAILS(mapi_create_flow("host1:eth0, host2:eth0") != -1, 6160);
    FAILS(mapi_create_offline_device("/nowhere.pcap", MFF_PCAP) != NULL, 6155);
    FAILS(mapi_create_offline_device(NULL, MFF_PCAP) != NULL, 6155);
    FAILS(mapi_create_offline_device("mix.pcap", 17) != NULL, 7002);
    FAILS(mapi_create_offline_flow("/nowhere.pcap", MFF_PCAP) != -1, 6155);
    FAILS(mapi_start_offline_device("nowhere") != -1, 3200);
    FAILS(mapi_start_offline_device(NULL) != -1, 6151);
    FAILS(mapi_start_offline_device(device) != -1, 3200);
    FAILS(mapi_delete_offline_device(unknown) != -1, 3200);
    while (mapi_get_next_device_info(id, &info) == 0) {
        OK(info.id > id && info.link_speed > 0);
        id = info.id;
        found += strcmp(info.device, device) == 0;
    }
    OK(id > 0 && found == 1);
    expect(6151, "there is no further device", __LINE__);
    FAILS(mapi_get_device_info(0, &info) != -1, 6151);
    FAILS(mapi_get_device_info(1, NULL) != -1, 7002);
    OK(mapi_stats(device, &stat) == 1 && strcmp(stat.dev, device) == 0 && stat.hostname[0] != '\0');
    FAILS(mapi_stats("nowhere", &stat) != -1, 3200);
    FAILS(mapi_stats(device, NULL) != -1, 7002);
    FAILS(mapi_stats(NULL, &stat) != -1, 6151);
}

static void functions(int fd)
{
    char *array[] = {"10", "often"};
    int count = mapi_apply_function(fd, "PKT_COUNTER");
    OK(count == 1);
    FAILS(mapi_apply_function(fd, NULL) != -1, 6144);
    FAILS(mapi_apply_function(fd, "NO_SUCH") != -1, 6144);
    FAILS(mapi_apply_function(fd, "INTERFACE", 1) != -1, 6144);
    FAILS(mapi_apply_function(-5, "PKT_COUNTER") != -1, 6147);
    FAILS(mapi_apply_function(999, "PKT_COUNTER") != -1, 6145);
    FAILS(mapi_apply_function(fd, "BPF_FILTER") != -1, 7001);
    FAILS(mapi_apply_function(fd, "BPF_FILTER", NULL) != -1, 7001);
    FAILS(mapi_apply_function(fd, "BPF_FILTER", "tcp prot 80") != -1, 1025);
    FAILS(mapi_apply_function(fd, "STR_SEARCH", "|0d 0a", 0, 0) != -1, 3503);
    FAILS(mapi_apply_function(fd, "STR_SEARCH", "abcdef", 0, 3) != -1, 3504);
    FAILS(mapi_apply_function(fd, "STR_SEARCH", "|zz|", 0, 0) != -1, 3505);
    FAILS(mapi_apply_function(fd, "STR_SEARCH", "a", -1, 0) != -1, 7002);
    FAILS(mapi_apply_function(fd, "SAMPLE", 0, 2) != -1, 7001);
    FAILS(mapi_apply_function(fd, "SAMPLE", 10, 7) != -1, 7002);
    FAILS(mapi_apply_function(fd, "HASHSAMP", 2000, 1) != -1, 7001);
    FAILS(mapi_apply_function(fd, "HASH", 4) != -1, 7001);
    FAILS(mapi_apply_function(fd, "PKTINFO", 9) != -1, 7001);
    FAILS(mapi_apply_function(fd, "PROTINFO", "ip.nothing") != -1, 7001);
    FAILS(mapi_apply_function(fd, "ETHEREAL", "tcp.port ==") != -1, 7001);
    FAILS(mapi_apply_function(fd, "REGEXP", "(") != -1, 7001);
    FAILS(mapi_apply_function(fd, "BUCKET", fd, 7, "1s", 1) != -1, 6147);
    FAILS(mapi_apply_function(fd, "BUCKET", fd, count, "soon", 1) != -1, 7003);
    FAILS(mapi_apply_function(fd, "BUCKET", fd, count, "1s", 7) != -1, 7004);
    FAILS(mapi_apply_function(fd, "BINOP", 5, fd, count, fd, count) != -1, 7001);
    FAILS(mapi_apply_function(fd, "STATS", 999, 1, "0") != -1, 6147);
    FAILS(mapi_apply_function(fd, "DIST", fd, count, "5", "1", "1") != -1, 7005);
    FAILS(mapi_apply_function(fd, "STARTSTOP", "yesterday", "+1s") != -1, 7001);
    FAILS(mapi_apply_function(fd, "TOP", 1001, TOPX_TCP, TOPX_TCP_DSTPORT) != -1, 7001);
    FAILS(mapi_apply_function(fd, "TOP", 10, 4, TOPX_TCP_DSTPORT) != -1, 7002);
    FAILS(mapi_apply_function(fd, "TOP", 10, TOPX_IP, TOPX_TCP_DSTPORT) != -1, 7003);
    FAILS(mapi_apply_function(fd, "COOKING", 100000, 30, 1, BOTH_SIDE) != -1, 7001);
    FAILS(mapi_apply_function(fd, "COOKING", 1000, 30, 1, 9) != -1, 7004);
    FAILS(mapi_apply_function(fd, "ANONYMIZE", "IP,VERSION,ZERO") != -1, 7001);
    FAILS(mapi_apply_function(fd, "ANONYMIZEIP", "short") != -1, 7001);
    FAILS(mapi_apply_function(fd, "FLOW_REPORT", "IPFIX", "host:2055") != -1, 7002);
    FAILS(mapi_apply_function(fd, "SYNC", "1,nobody") != -1, 7001);
    FAILS(mapi_apply_function(fd, "THRESHOLD", 9, fd, count, 1ULL, 1) != -1, 7001);
    FAILS(mapi_apply_function(fd, "TO_FILE", MFF_DAG_ERF, "x.erf", 0ULL) != -1, 7006);
    FAILS(mapi_apply_function(fd, "TO_FILE", MFF_PCAP, NULL, 0ULL) != -1, 6155);
    FAILS(mapi_apply_function(fd, "RES2FILE", "1@1", "1", "TEST", "x", "5s", 1) != -1, 7002);
    FAILS(mapi_apply_function(fd, "RES2FILE", "1,1", "1@1", "TEST", "x", "5s", 1) != -1, 7001);
    FAILS(mapi_apply_function(fd, "RES2FILE", "1", "1", "TEST", NULL, "5s", 1) != -1, 6155);
    FAILS(mapi_apply_function(fd, "RES2FILE", "1", "1", "TEST", "x", "-25s", 1) != -1, 7005);
    FAILS(mapi_apply_function(fd, "RES2FILE", "no", "such", "TEST", "x", "5s", 234) != -1, 7011);
    FAILS(mapi_apply_function_array(fd, "SAMPLE", array, 2) != -1, 7002);
    FAILS(mapi_apply_function_array(fd, "SAMPLE", NULL, 2) != -1, 7001);
    OK(mapi_apply_function_array(fd, "SAMPLE", array, 1) == 2);
    /* What is too much is left. */
    OK(mapi_apply_function(fd, "PKT_COUNTER", NULL, "ANOTHER1", 453) == 3);
    OK(mapi_apply_function(fd, "TO_BUFFER", WAIT) == 4);
}

static void states(int fd)
{
    mapi_function_info_t function;
    mapi_flow_info_t flow;
    FAILS(mapi_read_results(fd, 1) != NULL, 6143);
    FAILS(mapi_get_next_pkt(fd, 4) != NULL, 6143);
    FAILS(mapi_apply_function(fd, "STR_SEARCH", "caf\xe9") >= 0, 7001);
    /* Why there is no flow is told, not that there is none. */
    OK(mapi_create_offline_flow("/no/such/trace", MFF_PCAP) == -1);
    OK(mapi_apply_function(-1, "PKT_COUNTER") == -1 && mapi_connect(-1) != 0);
    FAILS(mapi_read_results(-1, 1) != NULL, 6155);
    FAILS(mapi_loop(fd, 4, 1, handler) >= 0, 6143);
    OK(mapi_get_flow_info(fd, &flow) == 0 && flow.status == FLOW_INIT && flow.start == 0);
    OK(mapi_connect(fd) == 0);
    FAILS(mapi_connect(fd) != -2, 3081);
    FAILS(mapi_apply_function(fd, "PKT_COUNTER", NULL, "ANOTHER1", 453) != -1, 7006);
    OK(mapi_get_flow_info(fd, &flow) == 0 && flow.status == FLOW_ACTIVE && flow.uid == getuid());
    OK(flow.num_functions == 4 && flow.start != 0 && flow.devid > 0);
    OK(mapi_read_results(fd, 1) != NULL);
    FAILS(mapi_read_results(fd, 2) != NULL, 6147);
    FAILS(mapi_read_results(fd, 4) != NULL, 6147);
    FAILS(mapi_read_results(fd, 5) != NULL, 6147);
    FAILS(mapi_read_results(fd, 0) != NULL, 6145);
    FAILS(mapi_read_results(fd, -3) != NULL, 6145);
    FAILS(mapi_read_results(999, 1) != NULL, 6145);
    FAILS(mapi_get_next_pkt(fd, 1) != NULL, 6147);
    FAILS(mapi_get_next_pkt(-1, 4) != NULL, 6147);
    FAILS(mapi_loop(-123, 4, 1, handler) >= 0, 6147);
    FAILS(mapi_loop(fd, -12348, 1, handler) >= 0, 6147);
    FAILS(mapi_loop(fd, 4, 1, NULL) >= 0, 7004);
    FAILS(mapi_get_function_info(fd, 5, &function) != -1, 6150);
    FAILS(mapi_get_function_info(fd, -1, &function) != -1, 6147);
    FAILS(mapi_get_function_info(fd, 1, NULL) != -1, 7003);
    FAILS(mapi_get_flow_info(fd, NULL) != -1, 7002);
    FAILS(mapi_set_authdata(fd, "me") != -1, 6160);
    FAILS(mapi_authenticate(fd, "me", "secret", "all") != -1, 6160);
    OK(mapi_get_scope_size(fd) == 1 && mapi_is_remote(fd) == 0 && mapi_is_sensor_down(fd) == 0);
    OK(mapi_close_flow(fd) == 0);
    FAILS(mapi_close_flow(fd) != -1, 6145);
    FAILS(mapi_read_results(fd, 1) != NULL, 6145);
    FAILS(mapi_get_scope_size(fd) != -1, 6145);
    FAILS(mapi_get_flow_info(fd, &flow) != -1, 6145);
}

static void libraries(void)
{
    mapi_lib_info_t library;
    mapi_libfunct_info_t function;
    FAILS(mapi_get_library_info(-1, &library) != -1, 6152);
    FAILS(mapi_get_library_info(99, &library) != -1, 6152);
    FAILS(mapi_get_library_info(0, NULL) != -1, 7002);
    FAILS(mapi_get_libfunct_info(0, 99, &function) != -1, 6152);
    FAILS(mapi_get_libfunct_info(0, 0, NULL) != -1, 7003);
    OK(mapi_get_next_library_info(-1, &library) == 0 && strcmp(library.libname, "stdflib") == 0 && library.id == 0);
}

int main(int argc, char *argv[])
{
    int fd;
    if (argc != 2)
        return 2;
    before_any_flow();
    devices(argv[1]);
    libraries();
    fd = mapi_create_flow(argv[1]);
    OK(fd == 1);
    functions(fd);
    states(fd);
    /* A flow without functions. */
    fd = mapi_create_flow(argv[1]);
    OK(fd == 2 && mapi_connect(fd) == 0 && mapi_close_flow(fd) == 0);
    return 0;
}

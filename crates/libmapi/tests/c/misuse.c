/* Each call with bad arguments and in a wrong state. argv: a device that holds. */
#include "check.h"
#include <mapi/binop.h>
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
    mapi_flow_info_t flow;
    char *offline[3];
    int id = 0, found = 0, fd, at;
    FAILS(mapi_create_flow("nowhere") != -1, 3200);
    FAILS(mapi_create_flow(NULL) != -1, 6151);
    /* This machine has no key here. */
    FAILS(mapi_create_flow("127.0.0.1:1:eth0, 127.0.0.1:2:eth0") != -1, 8003);
    FAILS(mapi_create_flow("nowhere, nobody") != -1, 3200);
    FAILS(mapi_create_offline_device("/nowhere.pcap", MFF_PCAP) != NULL, 6155);
    FAILS(mapi_create_offline_device(NULL, MFF_PCAP) != NULL, 6155);
    FAILS(mapi_create_offline_device("mix.pcap", 17) != NULL, 7002);
    FAILS(mapi_create_offline_flow("/nowhere.pcap", MFF_PCAP) != -1, 6155);
    FAILS(mapi_start_offline_device("nowhere") != -1, 3200);
    FAILS(mapi_start_offline_device(NULL) != -1, 6151);
    FAILS(mapi_start_offline_device(device) != -1, 3200);
    FAILS(mapi_delete_offline_device(unknown) != -1, 3200);
    /* A device keeps its number, whichever come and go. */
    fd = mapi_create_flow(device);
    OK(mapi_get_flow_info(fd, &flow) == 0);
    id = flow.devid;
    OK(mapi_close_flow(fd) == 0);
    for (at = 0; at < 3; at++)
        OK((offline[at] = mapi_create_offline_device("mix.pcap", MFF_PCAP)) != NULL);
    OK(mapi_get_device_info(id, &info) == 0 && strcmp(info.device, device) == 0);
    OK(mapi_delete_offline_device(offline[1]) == 0);
    OK(mapi_get_device_info(id + 1, &info) == 0 && strcmp(info.device, offline[0]) == 0);
    FAILS(mapi_get_device_info(id + 2, &info) != -1, 6151);
    OK(mapi_get_next_device_info(id + 1, &info) == 0 && info.id == id + 3);
    OK(mapi_delete_offline_device(offline[0]) == 0 && mapi_delete_offline_device(offline[2]) == 0);
    id = 0;
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
    FAILS(mapi_apply_function(fd, "FLOW_REPORT", "IPFIX", "nowhere") != -1, 7002);
    FAILS(mapi_apply_function(fd, "SYNC", "1,nobody") != -1, 7001);
    FAILS(mapi_apply_function(fd, "THRESHOLD", 9, fd, count, 1ULL, 1) != -1, 7001);
    FAILS(mapi_apply_function(fd, "TO_FILE", MFF_DAG_ERF, "x.erf", 0ULL) != -1, 7006);
    FAILS(mapi_apply_function(fd, "TO_FILE", MFF_PCAP, NULL, 0ULL) != -1, 6155);
    FAILS(mapi_apply_function(fd, "RES2FILE", "1@1", "1", "TEST", "x", "5s", 1) != -1, 7002);
    FAILS(mapi_apply_function(fd, "RES2FILE", "1,1", "1@2", "TEST", "x", "5s", 1) != -1, 7001);
    FAILS(mapi_apply_function(fd, "RES2FILE", "1", "1", "TEST", NULL, "5s", 1) != -1, 6155);
    FAILS(mapi_apply_function(fd, "RES2FILE", "1", "1", "TEST", "x", "-25s", 1) != -1, 7005);
    FAILS(mapi_apply_function(fd, "RES2FILE", "no", "such", "TEST", "x", "5s", 234) != -1, 7011);
    FAILS(mapi_apply_function(fd, "RES2FILE", "9", "1", "TEST", "x", "5s", 1) != -1, 7001);
    FAILS(mapi_apply_function(fd, "RES2FILE", "1", "9", "TEST", "x", "5s", 1) != -1, 7002);
    FAILS(mapi_apply_function(fd, "RES2FILE", NULL, "1", "TEST", "x", "5s", 1) != -1, 7001);
    FAILS(mapi_apply_function(fd, "RES2FILE", "1", NULL, "TEST", "x", "5s", 1) != -1, 7002);
    FAILS(mapi_apply_function(fd, "RES2FILE", "1", "1", NULL, "x", "5s", 1) != -1, 7003);
    FAILS(mapi_apply_function(fd, "RES2FILE", "1", "1", "TEST", "x", NULL, 1) != -1, 7005);
    /* What means nothing. */
    FAILS(mapi_apply_function(fd, "ANONYMIZE", "") != -1, 7001);
    FAILS(mapi_apply_function(fd, "ANONYMIZE", " ; ") != -1, 7001);
    FAILS(mapi_apply_function(fd, "ETHEREAL", "") != -1, 7001);
    FAILS(mapi_apply_function(fd, "REGEXP", "") != -1, 7001);
    FAILS(mapi_apply_function(fd, "PROTINFO", "") != -1, 7001);
    FAILS(mapi_apply_function(fd, "SYNC", "") != -1, 7001);
    FAILS(mapi_apply_function(fd, "STR_SEARCH", "", 0, 0) != -1, 3505);
    FAILS(mapi_apply_function(fd, "STR_SEARCH", "a", 0, -1) != -1, 7003);
    FAILS(mapi_apply_function(fd, "SAMPLE", -1, 2) != -1, 7001);
    FAILS(mapi_apply_function(fd, "SAMPLE", 101, 3) != -1, 7001);
    FAILS(mapi_apply_function(fd, "HASHSAMP", 10, -1) != -1, 7002);
    FAILS(mapi_apply_function(fd, "HASH", -1) != -1, 7001);
    FAILS(mapi_apply_function(fd, "PKTINFO", -1) != -1, 7001);
    FAILS(mapi_apply_function(fd, "TO_BUFFER", 2) != -1, 7001);
    FAILS(mapi_apply_function(fd, "BUCKET", fd, count, "0", 1) != -1, 7003);
    FAILS(mapi_apply_function(fd, "BUCKET", fd, count, "", 1) != -1, 7003);
    FAILS(mapi_apply_function(fd, "STATS", fd, count, "often") != -1, 7003);
    FAILS(mapi_apply_function(fd, "DIST", fd, count, "1", "x", "1") != -1, 7004);
    FAILS(mapi_apply_function(fd, "STARTSTOP", "+2s", "+1s") != -1, 7002);
    FAILS(mapi_apply_function(fd, "STARTSTOP", "2026-11-22 10:00:00", "2026-11-22 09:00:00") != -1, 7002);
    FAILS(mapi_apply_function(fd, "BURST", 0, 100, 0) != -1, 7003);
    FAILS(mapi_apply_function(fd, "BURST", -1, 100, 10) != -1, 7001);
    FAILS(mapi_apply_function(fd, "BURST", 0, 100, 10, -1) != -1, 7004);
    FAILS(mapi_apply_function(fd, "BURST", 0, 100, 10, 1, 1, 1, 0) != -1, 7000);
    FAILS(mapi_apply_function(fd, "COOKING", 0) != -1, 7001);
    FAILS(mapi_apply_function(fd, "COOKING", 100, -1) != -1, 7002);
    FAILS(mapi_apply_function(fd, "COOKING", 100, 1, 2) != -1, 7003);
    FAILS(mapi_apply_function(fd, "TOP", 0, TOPX_TCP, TOPX_TCP_DSTPORT) != -1, 7001);
    FAILS(mapi_apply_function(fd, "TOP", 5, TOPX_TCP, TOPX_TCP_DSTPORT, 3) != -1, 7004);
    FAILS(mapi_apply_function(fd, "TOP", 5, TOPX_TCP, TOPX_TCP_DSTPORT, 1, -1) != -1, 7005);
    FAILS(mapi_apply_function(fd, "EXPIRED_FLOWS", 0) != -1, 7001);
    FAILS(mapi_apply_function(fd, "EXPIRED_FLOWS", 10, 0) != -1, 7002);
    FAILS(mapi_apply_function(fd, "EXPIRED_FLOWS", 10, 10, 0) != -1, 7003);
    FAILS(mapi_apply_function(fd, "THRESHOLD", 192, fd, count, 1ULL, 1) != -1, 7001);
    FAILS(mapi_apply_function(fd, "THRESHOLD", 2, fd, count, 1ULL, 3) != -1, 7005);
    FAILS(mapi_apply_function(fd, "THRESHOLD", 2, fd, count, 1ULL, 1, -1) != -1, 7011);
    FAILS(mapi_apply_function(fd, "THRESHOLD", 2, fd, count, 1ULL, 1, 0, 0) != -1, 7000);
    FAILS(mapi_apply_function(fd, "THRESHOLD", 2, fd, count, 1ULL, 1, 0, 1, -1) != -1, 7000);
    /* Files are opened when they are named. */
    FAILS(mapi_apply_function(fd, "TO_FILE", MFF_PCAP, "/no/such/folder/x.pcap", 0ULL) != -1, 6155);
    FAILS(mapi_apply_function(fd, "TO_FILE", MFF_PCAP, "", 0ULL) != -1, 6155);
    FAILS(mapi_apply_function(fd, "TO_FILE", MFF_PCAP, "x.pcap", -1LL) != -1, 7003);
    FAILS(mapi_apply_function(fd, "RES2FILE", "1", "1", "TEST", "/no/such/folder/x", "5s", 1) != -1, 6155);
    /* Results of what has none. */
    FAILS(mapi_apply_function(fd, "BINOP", ADD, fd, count, fd, 9) != -1, 6147);
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
    FAILS(mapi_set_authdata(fd, "me") != -1, 3081);
    FAILS(mapi_set_authdata(fd, NULL) != -1, 7002);
    FAILS(mapi_set_authdata(999, "me") != -1, 6145);
    FAILS(mapi_authenticate(fd, "me", "secret", "all") != -1, 3081);
    FAILS(mapi_authenticate(fd, "me", NULL, "all") != -1, 7003);
    OK(mapi_get_result_generation(fd, 1, 0) == 1);
    FAILS(mapi_get_result_generation(fd, 1, 1) != -1, 7002);
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
    OK(fd == 2);
    functions(fd);
    states(fd);
    /* A flow without functions. */
    fd = mapi_create_flow(argv[1]);
    OK(fd == 3 && mapi_connect(fd) == 0 && mapi_close_flow(fd) == 0);
    return 0;
}

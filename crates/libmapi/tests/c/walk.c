/* Applies each function that the library tells of, and checks that it has a result or passes packets on. */
#include "check.h"
#include <mapi/binop.h>
#include <mapi/sample.h>
#include <mapi/threshold.h>
#include <mapi/topx.h>

/* Applies a function; flow fd has a counter as function 1 and lengths as function 2. */
static int apply(int fd, const char *name)
{
    char own[16];
    sprintf(own, "%d", fd);
#define IS(of) (strcmp(name, of) == 0)
    if (IS("BPF_FILTER"))
        return mapi_apply_function(fd, name, "tcp");
    if (IS("STR_SEARCH"))
        return mapi_apply_function(fd, name, "HTTP/1.1");
    if (IS("SAMPLE"))
        return mapi_apply_function(fd, name, 50, PROBABILISTIC);
    if (IS("HASHSAMP"))
        return mapi_apply_function(fd, name, 1024, 1);
    if (IS("TO_FILE"))
        return mapi_apply_function(fd, name, MFF_PCAP, "walk.pcap", 10ULL);
    if (IS("BUCKET"))
        return mapi_apply_function(fd, name, fd, 1, "1s", 0);
    if (IS("THRESHOLD"))
        return mapi_apply_function(fd, name, TYPE_ULL, fd, 1, 10ULL, GT_BOUND, 0, 1, 1);
    if (IS("BINOP"))
        return mapi_apply_function(fd, name, ADD, fd, 1, fd, 1);
    if (IS("DIST"))
        return mapi_apply_function(fd, name, fd, 2, "0", "1500", "100");
    if (IS("PROTINFO"))
        return mapi_apply_function(fd, name, "ip.ttl");
    if (IS("RES2FILE"))
        return mapi_apply_function(fd, name, "1", "1", "packets", "walk.txt", "1s", 0);
    if (IS("STARTSTOP"))
        return mapi_apply_function(fd, name, "+0s", "+1s");
    if (IS("STATS"))
        return mapi_apply_function(fd, name, fd, 2, "0");
    if (IS("BURST"))
        return mapi_apply_function(fd, name, 0, 65536, 1024, 96, 1000, 1000, 1000);
    if (IS("SYNC"))
        return mapi_apply_function(fd, name, own);
    if (IS("ETHEREAL"))
        return mapi_apply_function(fd, name, "tcp.dstport == 80");
    if (IS("REGEXP"))
        return mapi_apply_function(fd, name, "HTTP/1\\.[01]");
    if (IS("TOP"))
        return mapi_apply_function(fd, name, 10, TOPX_IP, TOPX_IP_SRCIP);
    if (IS("RULER"))
        return mapi_apply_function(fd, name, "filter tcp Ethernet_IPv4 IPv4_TCP * => accept;");
    if (IS("ANONYMIZE"))
        return mapi_apply_function(fd, name, "IP,SRC_IP,PREFIX_PRESERVING");
    return mapi_apply_function(fd, name);
}

int main(int argc, char *argv[])
{
    mapi_lib_info_t library;
    mapi_libfunct_info_t function;
    mapi_function_info_t info;
    int id = -1, applied = 0;
    if (argc != 2)
        return 2;
    while (mapi_get_next_library_info(id, &library) == 0) {
        int fid = -1;
        unsigned functions = 0;
        id = library.id;
        while (mapi_get_next_libfunct_info(id, fid++, &function) == 0) {
            mapi_results_t *result;
            int has_result;
            int fd = mapi_create_offline_flow(argv[1], MFF_PCAP);
            functions++;
            applied++;
            /* It sends; a test of its own has it. */
            if (strcmp(function.name, "INJECT") == 0) {
                printf("%s 1 %d 0\n", function.name, -1);
                OK(mapi_close_flow(fd) == 0);
                continue;
            }
            OK(fd > 0 && function.descr[0] != '\0' && function.devtype[0] != '\0');
            OK(mapi_apply_function(fd, "PKT_COUNTER") == 1);
            OK(mapi_apply_function(fd, "PKTINFO", 1) == 2);
            OK(apply(fd, function.name) == 3);
            OK(mapi_connect(fd) == 0);
            /* What nobody takes holds up the trace. */
            while (strcmp(function.name, "TO_BUFFER") == 0 && mapi_get_next_pkt(fd, 3) != NULL)
                ;
            /* Nor does a trace go on whose samples are not read. */
            if (strcmp(function.name, "HASHSAMP") != 0)
                finish(fd);
            result = mapi_read_results(fd, 3);
            has_result = result != NULL && result->size > 0;
            while (strcmp(function.name, "HASHSAMP") == 0 && mapi_read_results(fd, 3) != NULL)
                ;
            finish(fd);
            OK(mapi_get_function_info(fd, 3, &info) == 0 && strcmp(info.libname, library.libname) == 0);
            printf("%s %d %llu %llu\n", function.name, has_result, info.pkts, info.passed_pkts);
            OK(mapi_close_flow(fd) == 0);
        }
        OK(functions == library.functs);
    }
    return applied > 30 ? 0 : 1;
}

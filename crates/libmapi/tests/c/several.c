/* Functions of other flows, and flows that begin together. argv: trace */
#include "check.h"
#include <mapi/binop.h>
#include <mapi/res2file.h>

int main(int argc, char *argv[])
{
    char *device, list[32];
    int tcp, udp, third, packets, others, sum;
    if (argc != 2)
        return 2;
    device = mapi_create_offline_device(argv[1], MFF_PCAP);
    OK(device != NULL);
    tcp = mapi_create_flow(device);
    udp = mapi_create_flow(device);
    third = mapi_create_flow(device);
    OK(mapi_apply_function(tcp, "BPF_FILTER", "tcp") == 1);
    packets = mapi_apply_function(tcp, "PKT_COUNTER");
    /* Of itself, of another flow, and of one that waits for both. */
    OK(mapi_apply_function(udp, "BPF_FILTER", "udp") == 1);
    others = mapi_apply_function(udp, "PKT_COUNTER");
    sum = mapi_apply_function(udp, "BINOP", ADD, tcp, packets, udp, others);
    OK(sum == 3);
    OK(mapi_apply_function(third, "PKT_COUNTER") == 1);
    sprintf(list, "%d,%d", tcp, udp);
    OK(mapi_apply_function(third, "SYNC", list) == 2);
    sprintf(list, "%d@%d,%d@%d", packets, tcp, others, udp);
    OK(mapi_apply_function(third, "RES2FILE", "1,1", list, "tcp udp", "several.txt", "-1", 0) == 3);
    FAILS(mapi_apply_function(third, "STATS", udp, sum, "0") != -1, 6147);
    OK(mapi_connect(third) == 0);
    FAILS(mapi_read_results(third, 1) != NULL, 6143);
    OK(mapi_connect(tcp) == 0);
    FAILS(mapi_read_results(third, 1) != NULL, 6143);
    OK(mapi_connect(udp) == 0);
    OK(mapi_read_results(third, 1) != NULL);
    OK(mapi_start_offline_device(device) == 0);
    finish(third);
    finish(udp);
    printf("%llu %llu %llu %llu\n", number(tcp, packets), number(udp, others), number(udp, sum), number(third, 1));
    OK(mapi_close_flow(third) == 0 && mapi_close_flow(udp) == 0 && mapi_close_flow(tcp) == 0);
    FAILS(mapi_create_flow("nowhere") != -1, 3200);
    OK(mapi_delete_offline_device(device) == 0);
    return 0;
}

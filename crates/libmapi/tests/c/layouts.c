/* Sizes, offsets and numbers that programs of the published MAPI have compiled in. */
#include <mapi/expiredflowshash.h>
#include <net/ethernet.h>
#include <mapi.h>
#include <mapi/anonymization.h>
#include <mapi/binop.h>
#include <mapi/bucket.h>
#include <mapi/burst.h>
#include <mapi/dist.h>
#include <mapi/hashsamp.h>
#include <mapi/ipfixlib.h>
#include <mapi/pktinfo.h>
#include <mapi/protocols.h>
#include <mapi/sample.h>
#include <mapi/stats.h>
#include <mapi/threshold.h>
#include <mapi/topx.h>
#include <res2file.h>
#include <stddef.h>

#define IS(what, number) typedef char check_[(what) == (number) ? 1 : -1] MAPI_UNUSED
#define AT(type, field, offset) IS(offsetof(type, field), offset)

IS(sizeof(struct mapipkt), 24);
AT(struct mapipkt, ts, 0);
AT(struct mapipkt, ifindex, 8);
AT(struct mapipkt, caplen, 12);
AT(struct mapipkt, wlen, 16);
AT(struct mapipkt, pkt, 20);
IS(sizeof(mapi_results_t), 24);
AT(mapi_results_t, res, 0);
AT(mapi_results_t, ts, 8);
AT(mapi_results_t, size, 16);
IS(sizeof(mapi_flow_info_t), 296);
AT(mapi_flow_info_t, device, 12);
AT(mapi_flow_info_t, num_functions, 268);
AT(mapi_flow_info_t, start, 272);
AT(mapi_flow_info_t, end, 280);
AT(mapi_flow_info_t, status, 288);
IS(sizeof(mapi_function_info_t), 800);
AT(mapi_function_info_t, name, 4);
AT(mapi_function_info_t, libname, 260);
AT(mapi_function_info_t, devtype, 516);
AT(mapi_function_info_t, pkts, 776);
AT(mapi_function_info_t, passed_pkts, 784);
AT(mapi_function_info_t, result_size, 792);
IS(sizeof(mapi_device_info_t), 1808);
AT(mapi_device_info_t, description, 772);
AT(mapi_device_info_t, link_speed, 1796);
IS(sizeof(mapi_lib_info_t), 264);
AT(mapi_lib_info_t, functs, 260);
IS(sizeof(mapi_libfunct_info_t), 1792);
AT(mapi_libfunct_info_t, argdescr, 1280);
IS(sizeof(struct mapi_stat), 524);
AT(struct mapi_stat, hostname, 12);
IS(sizeof(mapi_member_info_t), 792);
AT(mapi_member_info_t, state, 256);
AT(mapi_member_info_t, since, 264);
AT(mapi_member_info_t, generation, 272);
AT(mapi_member_info_t, reason, 276);

IS(sizeof(stats_t), 64);
AT(stats_t, sum, 16);
AT(stats_t, sum2, 32);
AT(stats_t, max, 48);
AT(stats_t, min, 56);
IS(offsetof(dist_t, data), 24);
IS(sizeof(burst_category_t), 40);
IS(sizeof(struct bucket_data), 16);
IS(sizeof(struct sample), 40);
AT(struct sample, protocol, 24);
AT(struct sample, timestamp, 32);
IS(sizeof(struct threshold_result), 16);
IS(sizeof(struct topx_result), 48);
AT(struct topx_result, addr6, 4);
AT(struct topx_result, family, 20);
AT(struct topx_result, count, 24);
AT(struct topx_result, bytecount, 32);
AT(struct topx_result, last_rst_secs, 40);
IS(sizeof(flows_stat), 40);
AT(flows_stat, packets, 20);
IS(sizeof(flow_data), 40);
AT(flow_data, saddr, 24);
AT(flow_data, sport, 32);
AT(flow_data, ptcl, 36);
AT(flow_data, ttl_pkt1, 37);

IS(MFF_NAPATECH, 4);
IS(BOTH_SIDE, 3);
IS(NOWAIT, 1);
IS(DEVICE_DELETED, 4);
IS(FLOW_CLOSED, 3);
IS(MAPI_REF, 1);
IS(PKT_TS, 0);
IS(PROBABILISTIC, 3);
IS(R2F_STATS, 3);
IS(TOPX_UDP_CHECKSUM, 21);
IS(DEFAULT_DIMAPI_PORT, 2233);
IS(LT_D_BOUND, 16);
IS(TCP_PSH, 16);

static int by_pointer(int (*apply)(int, const char *, ...))
{
    return apply(1, "SAMPLE", 10, PERIODIC);
}

int main(void)
{
    boolean_t flag = FALSE;
    /* No flow yet. */
    return by_pointer(mapi_apply_function) != -1 || mapi_connect(1) != -2 || flag != FALSE;
}

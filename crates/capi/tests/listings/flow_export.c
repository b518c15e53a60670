/* The first listing as it stands; only its callee is filled in. In C++ "export" is a keyword. */
#include <inttypes.h>
#include <stdio.h>

#include <scap.h>

#ifdef __cplusplus
#define export export_flow
#endif

static void export(scap_ip_t src_ip, scap_ip_t dst_ip, uint16_t src_port, uint16_t dst_port, uint64_t bytes,
                   uint64_t pkts, uint64_t start, uint64_t end)
{
    char src[SCAP_ADDRESS_BYTES], dst[SCAP_ADDRESS_BYTES];

    printf("%s %u %s %u %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", scap_address_text(src_ip, src, sizeof src),
           (unsigned)src_port, scap_address_text(dst_ip, dst, sizeof dst), (unsigned)dst_port, bytes, pkts, end - start);
}

void stream_close(stream_t *sd);

int main(void)
{
#include "flow_export_main.inc"
    scap_close(sc);
    return 0;
}

#include "flow_export_callback.inc"

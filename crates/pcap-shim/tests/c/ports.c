/*
 * Prints the destination port of each packet of a file (65536 where it has none), and when it was captured.
 */
#include <pcap/pcap.h>
#include <stdio.h>

static unsigned port_of(const u_char *data, bpf_u_int32 len)
{
    if (len < 34 || data[12] != 8 || data[13] != 0 || (data[20] & 0x3f) != 0 || data[21] != 0)
        return 65536;
    unsigned at = 14 + 4 * (data[14] & 15);
    if ((data[23] != 6 && data[23] != 17) || len < at + 4)
        return 65536;
    return data[at + 2] << 8 | data[at + 3];
}

static void print(u_char *user, const struct pcap_pkthdr *header, const u_char *data)
{
    (void)user;
    printf("%u %ld%06ld\n", port_of(data, header->caplen), (long)header->ts.tv_sec, (long)header->ts.tv_usec);
}

int main(int count, char **arguments)
{
    char message[PCAP_ERRBUF_SIZE];
    pcap_t *handle = count == 2 ? pcap_open_offline(arguments[1], message) : NULL;
    if (handle == NULL)
        return 2;
    int status = pcap_loop(handle, -1, print, NULL);
    pcap_close(handle);
    return status != 0;
}

/* The unit of every figure: read a capture with libpcap and touch each packet.
 * usage: pcap_loop FILE
 * Prints packets, wire bytes and a sum over one header byte of each packet (so that the packet
 * is really looked at). */
#include <pcap/pcap.h>
#include <stdint.h>
#include <stdio.h>

struct totals {
  uint64_t packets, bytes, sum;
};

static void on_packet(u_char *user, const struct pcap_pkthdr *header, const u_char *data) {
  struct totals *totals = (struct totals *)user;
  totals->packets++;
  totals->bytes += header->len;
  if (header->caplen > 13) totals->sum += data[12] + data[13];
}

int main(int argc, char **argv) {
  char error[PCAP_ERRBUF_SIZE];
  if (argc != 2) {
    fprintf(stderr, "usage: %s FILE\n", argv[0]);
    return 2;
  }
  pcap_t *capture = pcap_open_offline(argv[1], error);
  if (!capture) {
    fprintf(stderr, "%s: %s\n", argv[1], error);
    return 1;
  }
  struct totals totals = {0, 0, 0};
  int status = pcap_dispatch(capture, -1, on_packet, (u_char *)&totals);
  if (status == PCAP_ERROR) fprintf(stderr, "%s: %s\n", argv[1], pcap_geterr(capture));
  printf("{\"packets\": %llu, \"bytes\": %llu, \"sum\": %llu}\n", (unsigned long long)totals.packets,
         (unsigned long long)totals.bytes, (unsigned long long)totals.sum);
  pcap_close(capture);
  return status == PCAP_ERROR;
}

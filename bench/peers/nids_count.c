/* libnids as a peer: reassembles every TCP connection and reads every byte it delivers.
 * usage: nids_count FILE [nochecksum]
 * Prints connections, bytes delivered and a sum of all of them (so that each is really read). */
#include <nids.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static uint64_t connections, bytes, sum;

static void read_bytes(const struct half_stream *half) {
  const unsigned char *data = (const unsigned char *)half->data;
  uint64_t local = 0;
  for (int i = 0; i < half->count_new; i++) local += data[i];
  sum += local;
  bytes += (uint64_t)half->count_new;
}

static void on_tcp(struct tcp_stream *stream, void **ignored) {
  (void)ignored;
  if (stream->nids_state == NIDS_JUST_EST) {
    stream->client.collect = 1;
    stream->server.collect = 1;
    connections++;
  } else if (stream->nids_state == NIDS_DATA) {
    if (stream->client.count_new) read_bytes(&stream->client);
    if (stream->server.count_new) read_bytes(&stream->server);
  }
}

static void no_syslog(int type, int err, void *ip, void *data) {
  (void)type, (void)err, (void)ip, (void)data;
}

int main(int argc, char **argv) {
  if (argc < 2) {
    fprintf(stderr, "usage: %s FILE [nochecksum]\n", argv[0]);
    return 2;
  }
  nids_params.filename = argv[1];
  nids_params.scan_num_hosts = 0; /* no port-scan detection: not the job measured */
  nids_params.n_tcp_streams = 65536 * 4;
  nids_params.n_hosts = 65536;
  nids_params.syslog = no_syslog;
  if (argc > 2 && strcmp(argv[2], "nochecksum") == 0) {
    static struct nids_chksum_ctl control;
    control.netaddr = 0;
    control.mask = 0;
    control.action = NIDS_DONT_CHKSUM;
    nids_register_chksum_ctl(&control, 1);
  }
  if (!nids_init()) {
    fprintf(stderr, "%s: %s\n", argv[1], nids_errbuf);
    return 1;
  }
  nids_register_tcp(on_tcp);
  nids_run();
  printf("{\"connections\": %llu, \"bytes\": %llu, \"sum\": %llu}\n", (unsigned long long)connections,
         (unsigned long long)bytes, (unsigned long long)sum);
  return 0;
}

/* libnids with Vectorscan as a peer: every TCP stream searched for
 * many patterns, across segments.
 * usage: nids_match FILE PATTERNS
 * PATTERNS: a line per pattern, `s` or `i` (ignore case) and the bytes in hexadecimal (the --hex file
 * of bench/patterns.py). Prints connections, bytes searched, matches, and the sum of the ends of all
 * matches times their pattern's number.. */
#include <hs/hs.h>
#include <nids.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static hs_database_t *database;
static hs_scratch_t *scratch;
static uint64_t connections, bytes, matches, sum;

struct search {
  hs_stream_t *client, *server;
};

static int on_match(unsigned id, unsigned long long from, unsigned long long to, unsigned flags, void *context) {
  (void)from, (void)flags, (void)context;
  matches++;
  sum += (uint64_t)(id + 1) * to;
  return 0;
}

static void scan(hs_stream_t *stream, const struct half_stream *half) {
  hs_scan_stream(stream, half->data, (unsigned)half->count_new, 0, scratch, on_match, NULL);
  bytes += (uint64_t)half->count_new;
}

static void on_tcp(struct tcp_stream *stream, void **context) {
  if (stream->nids_state == NIDS_JUST_EST) {
    struct search *search = calloc(1, sizeof *search);
    hs_open_stream(database, 0, &search->client);
    hs_open_stream(database, 0, &search->server);
    *context = search;
    stream->client.collect = 1;
    stream->server.collect = 1;
    connections++;
    return;
  }
  struct search *search = *context;
  if (!search) return;
  if (stream->nids_state == NIDS_DATA) {
    if (stream->client.count_new) scan(search->client, &stream->client);
    if (stream->server.count_new) scan(search->server, &stream->server);
    return;
  }
  hs_close_stream(search->client, scratch, on_match, NULL);
  hs_close_stream(search->server, scratch, on_match, NULL);
  free(search);
  *context = NULL;
}

static void no_syslog(int type, int err, void *ip, void *data) {
  (void)type, (void)err, (void)ip, (void)data;
}

static char *expression(const char *hex) {
  size_t count = strlen(hex) / 2;
  char *text = malloc(count * 4 + 1), *at = text;
  for (size_t n = 0; n < count; n++) at += sprintf(at, "\\x%.2s", hex + 2 * n);
  return text;
}

static int compile(const char *path) {
  enum { MOST = 1 << 20 };
  static char line[1 << 16];
  const char **texts = malloc(MOST * sizeof *texts);
  unsigned *flags = malloc(MOST * sizeof *flags), *ids = malloc(MOST * sizeof *ids), count = 0;
  FILE *file = fopen(path, "r");
  if (!file) {
    perror(path);
    return 1;
  }
  while (count < MOST && fgets(line, sizeof line, file)) {
    line[strcspn(line, "\n")] = 0;
    if (strlen(line) < 4) continue;
    texts[count] = expression(line + 2);
    flags[count] = line[0] == 'i' ? HS_FLAG_CASELESS : 0;
    ids[count] = count;
    count++;
  }
  fclose(file);
  hs_compile_error_t *error;
  if (hs_compile_multi(texts, flags, ids, count, HS_MODE_STREAM, NULL, &database, &error) != HS_SUCCESS) {
    fprintf(stderr, "%s: %s\n", path, error->message);
    return 1;
  }
  return hs_alloc_scratch(database, &scratch) != HS_SUCCESS;
}

int main(int argc, char **argv) {
  if (argc < 3) {
    fprintf(stderr, "usage: %s FILE PATTERNS\n", argv[0]);
    return 2;
  }
  if (compile(argv[2])) return 1;
  nids_params.filename = argv[1];
  nids_params.scan_num_hosts = 0;
  nids_params.n_tcp_streams = 65536 * 4;
  nids_params.n_hosts = 65536;
  nids_params.syslog = no_syslog;
  if (!nids_init()) {
    fprintf(stderr, "%s: %s\n", argv[1], nids_errbuf);
    return 1;
  }
  nids_register_tcp(on_tcp);
  nids_run();
  printf("{\"connections\": %llu, \"bytes\": %llu, \"matches\": %llu, \"sum\": %llu}\n", (unsigned long long)connections,
         (unsigned long long)bytes, (unsigned long long)matches, (unsigned long long)sum);
  return 0;
}

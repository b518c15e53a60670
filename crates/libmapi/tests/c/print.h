/* Results as the tests read them. */
static void print_stats(const char *name, int fd, int fid)
{
    stats_t *stats = result(fd, fid);
    printf("%s %llu %.0Lf %.0Lf %.0f %.0f\n", name, stats->count, stats->sum, stats->sum2, stats->max, stats->min);
}

static void print_dist(const char *name, int fd, int fid)
{
    dist_t *dist = result(fd, fid);
    unsigned long long slot;
    printf("%s %llu %llu %llu", name, dist->min, dist->max, dist->intervals);
    for (slot = 0; slot < dist->intervals + 2; slot++)
        printf(" %llu", dist->data[slot]);
    printf("\n");
}

static void print_bursts(int fd, int fid)
{
    burst_category_t *burst = result(fd, fid);
    int at;
    for (at = 0; at < 6; at++)
        printf("burst %d %lu %lu %lu %lu %lu\n", at, burst[at].bytes, burst[at].packets, burst[at].bursts, burst[at].gap_bytes,
               burst[at].gaps);
}

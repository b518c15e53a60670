/*
 * Eight threads read a file each, in different ways, over and over, so that handles come and go. Prints what each has read.
 */
#include <pcap/pcap.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define THREADS 8
#define ROUNDS 5

static const char *file;

struct read {
    unsigned long way, packets, bytes, hash;
};

static void add(u_char *user, const struct pcap_pkthdr *header, const u_char *data)
{
    struct read *read = (struct read *)user;
    unsigned hash = 2166136261u;
    for (bpf_u_int32 at = 0; at < header->caplen; at++)
        hash = (hash ^ data[at]) * 16777619u;
    read->packets++;
    read->bytes += header->len;
    read->hash += hash;
}

static void *run(void *user)
{
    struct read *read = user;
    char message[PCAP_ERRBUF_SIZE];
    for (int round = 0; round < ROUNDS; round++) {
        pcap_t *handle = pcap_open_offline(file, message);
        struct pcap_pkthdr *header;
        const u_char *data;
        if (handle == NULL)
            exit(2);
        if (read->way % 3 == 0 && pcap_loop(handle, -1, add, user) != 0)
            exit(3);
        while (read->way % 3 == 1 && pcap_next_ex(handle, &header, &data) == 1)
            add(user, header, data);
        while (read->way % 3 == 2 && pcap_dispatch(handle, 10, add, user) > 0)
            continue;
        /* Some are closed with packets left in them. */
        pcap_close(handle);
        handle = pcap_open_offline(file, message);
        if (handle == NULL || pcap_next_ex(handle, &header, &data) != 1)
            exit(4);
        pcap_close(handle);
    }
    return NULL;
}

int main(int count, char **arguments)
{
    pthread_t threads[THREADS];
    struct read reads[THREADS] = {{0}};
    if (count != 2)
        return 2;
    file = arguments[1];
    for (int at = 0; at < THREADS; at++) {
        reads[at].way = at;
        pthread_create(&threads[at], NULL, run, &reads[at]);
    }
    for (int at = 0; at < THREADS; at++) {
        pthread_join(threads[at], NULL);
        printf("%lu packets, %lu bytes, %lx\n", reads[at].packets, reads[at].bytes, reads[at].hash);
    }
    return 0;
}

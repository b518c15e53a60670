/*
 * Captures on an interface until a signal breaks the loop, then until another thread does.
 */
#include <pcap/pcap.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>

static pcap_t *handle;

static void stop(int number)
{
    (void)number;
    pcap_breakloop(handle);
}

static void *stop_too(void *nothing)
{
    (void)nothing;
    pcap_breakloop(handle);
    return NULL;
}

static void ignore(u_char *user, const struct pcap_pkthdr *header, const u_char *data)
{
    (void)user, (void)header, (void)data;
}

int main(int count, char **arguments)
{
    char message[PCAP_ERRBUF_SIZE];
    pthread_t thread;
    handle = count == 2 ? pcap_open_live(arguments[1], 100, 0, 10, message) : NULL;
    if (handle == NULL)
        return 2;
    signal(SIGINT, stop);
    puts("captures");
    fflush(stdout);
    printf("signal %d\n", pcap_loop(handle, -1, ignore, NULL));
    pthread_create(&thread, NULL, stop_too, NULL);
    printf("thread %d\n", pcap_loop(handle, -1, ignore, NULL));
    pthread_join(thread, NULL);
    pcap_close(handle);
    return 0;
}

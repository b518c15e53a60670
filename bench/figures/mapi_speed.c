/*
 * What a program of MAPI can take: packets of a capture file by mapi_get_next_pkt, and results of a counter by mapi_read_results,
 * in time of this process.
 *
 * cc -O2 bench/figures/mapi_speed.c -lmapi -o mapi_speed; ./mapi_speed FILE (a sensor runs, FLOWGAUGE_SENSOR names its socket)
 */
#include <mapi.h>
#include <stdio.h>
#include <time.h>

static double seconds(void) {
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

int main(int argc, char **argv) {
    const int READS = 1000000;
    unsigned long long packets = 0, sum = 0;
    char *device = argc == 2 ? mapi_create_offline_device(argv[1], MFF_PCAP) : NULL;
    int flow = device ? mapi_create_flow(device) : -1;
    int counter = mapi_apply_function(flow, "PKT_COUNTER");
    int buffer = mapi_apply_function(flow, "TO_BUFFER");
    struct mapipkt *packet;
    double began;
    int i;

    if (mapi_connect(flow) != 0) {
        char error[MAPI_ERRORSTR_LENGTH];

        mapi_read_error(&i, error);
        fprintf(stderr, "%d: %s\n", i, error);
        return 1;
    }
    mapi_start_offline_device(device);
    began = seconds();
    while ((packet = mapi_get_next_pkt(flow, buffer)) != NULL) {
        packets++;
        sum += packet->caplen;
    }
    printf("%.2f million packets per second, %llu of %llu bytes\n", packets / 1e6 / (seconds() - began), packets, sum);
    began = seconds();
    for (i = 0; i < READS; i++)
        sum += *(unsigned long long *)mapi_read_results(flow, counter)->res;
    printf("%.0f ns for the results of a counter\n", (seconds() - began) * 1e9 / READS);
    mapi_close_flow(flow);
    return 0;
}

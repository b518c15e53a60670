/*
 * Reads a file; every tenth packet an exception leaves the loop. Prints how many packets came.
 */
#include <cstdio>
#include <pcap/pcap.h>
#include <stdexcept>

struct Count {
    long packets = 0, destroyed = 0;
    ~Count() { std::printf("%ld packets, %ld exceptions\n", packets, destroyed); }
};

static void each(u_char *user, const struct pcap_pkthdr *, const u_char *)
{
    Count *count = reinterpret_cast<Count *>(user);
    if (++count->packets % 10 == 0)
        throw std::runtime_error("enough");
}

int main(int count, char **arguments)
{
    char message[PCAP_ERRBUF_SIZE];
    pcap_t *handle = count == 2 ? pcap_open_offline(arguments[1], message) : nullptr;
    if (handle == nullptr)
        return 2;
    Count counted;
    for (;;) {
        try {
            if (pcap_loop(handle, -1, each, reinterpret_cast<u_char *>(&counted)) == 0)
                break;
        } catch (const std::runtime_error &) {
            counted.destroyed++;
        }
    }
    pcap_close(handle);
    return 0;
}

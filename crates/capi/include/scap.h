/*
 * scap.h - stream capture: transport-layer streams as the first-class object of packet capture.
 *
 * The interface of Papadogiannakis, Polychronakis, Markatos: "Scap: Stream-Oriented Network Traffic
 * Capture and Analysis for High-Speed Networks" (IMC 2013), Table 1, implemented by Flowgauge's engine. Extensions
 * are marked [ours]. Valid C99 and C++11, and later versions of both.
 *
 *   cc program.c $(pkg-config --cflags --libs scap)
 *
 * A program creates a handle, configures it, and starts it; the capture calls the program back:
 *
 *   scap_t *sc = scap_create("eth0", SCAP_DEFAULT, SCAP_TCP_FAST, 0);
 *   scap_set_cutoff(sc, 0);
 *   scap_dispatch_termination(sc, stream_close);
 *   scap_start_capture(sc);
 *   scap_close(sc);
 *
 * ERRORS. Functions that return int return 0, or a negative enum scap_error_code. scap_create() returns NULL.
 * Functions that return void, and scap_next_stream_packet(), set the code that scap_error() returns.
 * scap_errbuf() returns the message: what failed, where, and a hint. A failed call has no effect. Calls with NULL, in
 * the wrong order, or with a closed handle are errors, never undefined behaviour.
 *
 * UNITS. Sizes, cutoffs and offsets are in bytes. Times are nanoseconds since 1970-01-01 00:00:00 UTC, durations
 * nanoseconds, unless stated otherwise. Ports are in host byte order. Bytes of a stream are bytes of transport
 * payload; its packets include those without payload.
 *
 * DROPPED data was wanted, and lost to overload. DISCARDED data was not wanted (cutoff, filter, duplicate, outside of
 * its stream). Bytes are counted individually; a packet counts as discarded or dropped if all of its payload is, and
 * as captured otherwise.
 *
 * THREADS. Handles are independent of each other. scap_start_capture() blocks; callbacks run in the calling thread
 * or, after scap_set_worker_threads(sc, n) with n > 1, in up to n threads concurrently. All events of a connection
 * (both directions) are delivered by one thread, in sequence; callbacks must protect data shared between connections.
 * While the capture runs, only these functions may be called: scap_stop_capture() from anywhere, including signal
 * handlers; scap_get_stats(), scap_error() and scap_errbuf() from any thread; functions that take a stream_t from
 * callbacks; and, from any thread, [ours] scap_set_cutoff(), scap_add_cutoff_direction(), scap_add_cutoff_class(),
 * scap_add_priority_class(), scap_add_policy() and scap_set_parameter() except for SCAP_SHARE and SCAP_OFFLOAD. They
 * apply to streams created later; inactivity timeout, base threshold and overload cutoff apply to all streams. In a
 * shared capture, overlap policies cannot change, because streams are reassembled once for all programs. All other
 * functions return SCAP_ESTATE. A callback must return normally: C++ exceptions and longjmp() must not leave it.
 *
 * OWNERSHIP. A handle belongs to the program until scap_close(). A stream_t belongs to the library. Its address does
 * not change, and it may be read from the stream's first callback until its termination callback returns (without
 * creation and data callbacks: during the termination callback only). Its data, and the packets in it, are valid until
 * the data callback returns. The program frees nothing, and writes nothing in a stream_t except user_state.
 */
#ifndef SCAP_H
#define SCAP_H

#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/time.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Constants ------------------------------------------------------------------------------------- */

/* Version of this interface. */
#define SCAP_VERSION_MAJOR 1
#define SCAP_VERSION_MINOR 0

/* For memory_size: 512 MiB. For reassembly_mode: SCAP_TCP_WAIT. */
#define SCAP_DEFAULT 0

/* No cutoff: every byte of a stream. */
#define SCAP_UNLIMITED (-1)

/* How TCP segments are reassembled. */
enum scap_reassembly_mode {
    /* Skips missing data immediately, and flags chunks with holes (SCAP_CHUNK_HOLE). Needs no handshake, and delivers
     * as much as possible of a lossy capture. */
    SCAP_TCP_FAST = 1,
    /* Delivers only correctly sequenced data of connections whose handshake was seen, normalised as by the receiver.
     * Delivery stops at missing data. */
    SCAP_TCP_STRICT = 2,
    /* [ours] Waits for missing data until it cannot arrive any more (the receiver acknowledged it, or a limit of bytes or
     * time is reached), then continues like FAST. */
    SCAP_TCP_WAIT = 3
};

/* Parameters of scap_set_parameter() and scap_set_stream_parameter(). */
enum scap_parameter {
    /* Seconds without packets in either direction after which a stream and its opposite end. Default: TCP 300, UDP 60,
     * others 30. Also applies to existing streams; a stream's own timeout takes precedence. In a shared capture, a stream
     * ends for all programs at once, after the longest of their timeouts: a program with a shorter one gets the last chunk
     * and the termination event later than it would alone, and possibly more of the stream. SCAP_FLUSH_TIMEOUT is not
     * affected by other programs. */
    SCAP_INACTIVITY_TIMEOUT = 1,
    /* Size of a chunk: 1 byte to 16 MiB. Default: 16384. 0 [ours]: no chunks; every segment is delivered separately, in
     * order, without copying it. */
    SCAP_CHUNK_SIZE = 2,
    /* Bytes at the end of a chunk that are repeated at the start of the next; less than the chunk size. Default: 0. */
    SCAP_OVERLAP_SIZE = 3,
    /* Milliseconds of capture time after which a partial chunk is delivered; 0: never. Default: 0. */
    SCAP_FLUSH_TIMEOUT = 4,
    /* Percentage of memory use below which no data is dropped by priority: 0 to 100. Default: 50. Not for single
     * streams. */
    SCAP_BASE_THRESHOLD = 5,
    /* When memory runs out, packets beyond this many bytes of their stream are dropped first; SCAP_UNLIMITED: none.
     * Default: none. Not for single streams. */
    SCAP_OVERLOAD_CUTOFF = 6,
    /* One of enum scap_reassembly_mode. */
    SCAP_REASSEMBLY_MODE = 7,
    /* One of enum scap_policy. Default: SCAP_POLICY_FIRST. */
    SCAP_REASSEMBLY_POLICY = 8,
    /* 1: share the capture of an interface with other processes, if possible; 0: capture separately, as with
     * FLOWGAUGE_SHARE=0 in the environment. Default: 1. If the capture could not be shared, scap_errbuf() tells why, while
     * scap_error() returns 0. Not for single streams. */
    SCAP_SHARE = 9,
    /* [ours] 1: drop data beyond cutoffs, and discarded streams, in the kernel, if possible (CAP_BPF, Linux 5.12);
     * counters stay the same. 0: never, as with FLOWGAUGE_OFFLOAD=0 in the environment. Default: 1. In a shared capture,
     * the process that captures decides. Not for single streams. */
    SCAP_OFFLOAD = 10
};

/* Which copy of overlapping segments is kept: as by the receiver's operating system. */
enum scap_policy {
    SCAP_POLICY_FIRST = 0, /* the first copy */
    SCAP_POLICY_LAST = 1,  /* the last copy */
    SCAP_POLICY_BSD = 2,
    SCAP_POLICY_BSD_RIGHT = 3,
    SCAP_POLICY_LINUX = 4, /* 2.4 and later */
    SCAP_POLICY_OLD_LINUX = 5,
    SCAP_POLICY_WINDOWS = 6,
    SCAP_POLICY_WINDOWS2003 = 7,
    SCAP_POLICY_VISTA = 8, /* and later */
    SCAP_POLICY_SOLARIS = 9,
    SCAP_POLICY_HPUX10 = 10,
    SCAP_POLICY_HPUX11 = 11,
    SCAP_POLICY_IRIX = 12,
    SCAP_POLICY_MACOS = 13
};

/* Direction of a stream. The client opened the connection: it sent the SYN or, if that was not seen, is inferred from
 * the first packet. */
enum scap_direction {
    SCAP_CLIENT_TO_SERVER = 0,
    SCAP_SERVER_TO_CLIENT = 1
};

/* State of a stream, or how it ended: stream_t.status. */
enum scap_status {
    SCAP_STATUS_ACTIVE = 0,
    SCAP_STATUS_CLOSED_FIN = 1,     /* closed by FIN */
    SCAP_STATUS_CLOSED_RST = 2,     /* reset */
    SCAP_STATUS_CLOSED_TIMEOUT = 3, /* no packets for the inactivity timeout */
    SCAP_STATUS_CUTOFF = 4,         /* active; its cutoff is reached, and there are no further data events. The last one has
                                     * this status already (SCAP_CHUNK_CUTOFF); the termination event tells how the stream ended */
    SCAP_STATUS_END_OF_INPUT = 5,   /* [ours] the capture ended before the stream */
    SCAP_STATUS_EVICTED = 6,        /* [ours] evicted from a full table, as the longest idle */
    SCAP_STATUS_STRICT = 7          /* [ours] active; SCAP_TCP_STRICT stopped at missing bytes (missing_at_end), or for want of a
                                     * handshake, and there are no further data events */
};

/* Anomalies of a stream, as a bit mask: stream_t.error. */
enum scap_stream_error {
    SCAP_ERROR_INCOMPLETE_HANDSHAKE = 1, /* the handshake was not seen completely */
    SCAP_ERROR_INVALID_SEQUENCE = 2,     /* sequence numbers outside of the window */
    SCAP_ERROR_GAP = 4,                  /* bytes are missing */
    SCAP_ERROR_OVERLAP = 8               /* copies of the same bytes differed */
};

/* Flags of the chunk in a data event, as a bit mask: stream_t.flags [ours]. */
enum scap_chunk_flag {
    SCAP_CHUNK_HOLE = 1,    /* bytes are missing before or inside it */
    SCAP_CHUNK_LAST = 2,    /* last chunk: the stream ended (none, if its last byte filled the preceding chunk) */
    SCAP_CHUNK_CUTOFF = 4,  /* last chunk: the cutoff is reached */
    SCAP_CHUNK_TIMEOUT = 8, /* partial: flush timeout */
    SCAP_CHUNK_EARLY = 16,  /* partial: memory was needed */
    SCAP_CHUNK_KEPT = 32,   /* starts with the kept chunk */
    SCAP_CHUNK_PACKET = 64  /* a packet of a protocol other than TCP and UDP, which is not reassembled */
};

/* Error codes of functions. */
enum scap_error_code {
    SCAP_OK = 0,
    SCAP_EHANDLE = -1,    /* the handle is NULL, closed or invalid */
    SCAP_EARGUMENT = -2,  /* an argument is NULL or out of range */
    SCAP_ESTATE = -3,     /* not allowed before, during or after the capture, or in a callback */
    SCAP_EDEVICE = -4,    /* the interface or file cannot be opened or read */
    SCAP_EFILTER = -5,    /* invalid filter */
    SCAP_EPARAMETER = -6, /* unknown parameter, or not available for single streams */
    SCAP_ESTREAM = -7,    /* the stream is NULL, has ended, or belongs to another capture */
    SCAP_EPACKETS = -8,   /* packets were not requested (need_pkts) */
    SCAP_ERESOURCE = -9,  /* out of memory, threads or handles */
    SCAP_EINTERNAL = -10  /* a bug in the library */
};

/* ---- Types ----------------------------------------------------------------------------------------- */

/* A capture, from scap_create() to scap_close(). */
typedef struct scap scap_t;

/* An IPv6 or IPv4 address in network byte order. IPv4 addresses are mapped (::ffff:a.b.c.d), so that all sixteen
 * bytes can be compared and hashed. scap_hdr.ip_version tells them apart; scap_address_text() formats both. Use in6 with
 * inet_ntop(AF_INET6, ...); ipv4[3] corresponds to s_addr of struct in_addr. */
typedef union scap_ip {
    uint8_t bytes[16];
    uint32_t ipv4[4];
    struct in6_addr in6;
} scap_ip_t;

/* Addresses and protocol of a stream. */
typedef struct scap_hdr {
    scap_ip_t src_ip;
    scap_ip_t dst_ip;
    uint16_t src_port; /* 0 if the protocol has no ports */
    uint16_t dst_port;
    uint8_t protocol;   /* IPPROTO_TCP, IPPROTO_UDP, ... */
    uint8_t direction;  /* enum scap_direction */
    uint8_t ip_version; /* [ours] 4 or 6 */
    uint8_t has_vlan;   /* [ours] whether vlan is valid */
    uint16_t vlan;      /* [ours] outermost VLAN id */
    uint16_t reserved[3];
} scap_hdr_t;

/* Bytes and packets. */
typedef struct scap_count {
    uint64_t bytes;
    uint64_t pkts;
} scap_count_t;

/* Statistics of a stream. */
typedef struct scap_stream_stats {
    uint64_t start;         /* time of the first packet */
    uint64_t end;           /* time of the last packet so far */
    uint64_t bytes;         /* all payload bytes, wanted or not, by the packets' headers */
    uint64_t pkts;          /* all packets */
    scap_count_t dropped;   /* of these, lost to overload */
    scap_count_t discarded; /* of these, not wanted: beyond the cutoff, duplicate, outside of the stream */
    scap_count_t captured;  /* of these, part of the stream */
} scap_stream_stats_t;

/* One direction of a connection. */
typedef struct scap_stream {
    scap_hdr_t hdr;
    scap_stream_stats_t stats;
    uint64_t uid; /* [ours] number of the stream, unique in the capture */
    int status;   /* enum scap_status */
    int error;    /* bit mask of enum scap_stream_error */
    int cutoff;   /* in bytes, or SCAP_UNLIMITED */
    int priority;
    int chunk_size;
    int flags;                    /* [ours] enum scap_chunk_flag, in data events */
    struct scap_stream *opposite; /* the other direction, never NULL. Its stats are current, its other members are those of its
                                   * last event. A direction without packets has counts of 0 and the status of this one; it has
                                   * its own events nevertheless, unless the filter of a shared capture, which is applied to
                                   * each direction separately, excludes it */
    char *data;                   /* the chunk, in data events, read-only; NULL in other events */
    uint32_t data_len;            /* its length; the paper uses both names */
    uint32_t len;                 /* the same */
    uint64_t offset;              /* [ours] stream offset of data[0], including missing bytes */
    uint64_t missing;             /* [ours] bytes missing right before data[0] */
    uint32_t repeated;            /* [ours] number of leading bytes repeated from the preceding chunk (overlap, kept) */
    uint32_t holes;               /* [ours] number of holes inside the chunk, see scap_next_stream_hole() */
    uint64_t processing_time;     /* nanoseconds spent in data callbacks for this stream before this event */
    uint64_t chunks;              /* number of data events, including this one */
    void *user_state;             /* for the program; initially NULL */
    uint64_t missing_at_end;      /* [ours] after the end: bytes known to be missing after the last chunk; after SCAP_TCP_STRICT
                                   * stopped: bytes missing there */
} stream_t;

/* A packet of a chunk. */
struct scap_pkthdr {
    struct timeval ts; /* capture time */
    uint32_t caplen;   /* bytes captured */
    uint32_t len;      /* bytes on the wire */
    uint64_t time;     /* [ours] capture time in nanoseconds */
    int64_t offset;    /* [ours] stream offset of the packet's first payload byte; INT64_MIN if unknown */
    uint32_t headers_len; /* [ours] captured bytes before the transport payload, from the link header on */
    uint32_t payload_len; /* [ours] captured bytes of transport payload */
    const char *headers;  /* [ours] the headers */
    uint64_t reserved;
};

/* Statistics of a capture. */
typedef struct scap_stats {
    /* All streams, as in scap_stream_stats_t. */
    uint64_t bytes;
    uint64_t pkts;
    scap_count_t dropped;
    scap_count_t discarded;
    scap_count_t captured;
    /* All packets: received = delivered + lost + refused. */
    uint64_t pkts_received;
    uint64_t pkts_delivered;
    uint64_t pkts_lost;    /* lost in the network card or the kernel's ring, or for want of memory or priority */
    uint64_t pkts_refused; /* not wanted: filter, cutoff, malformed, duplicate, outside of the stream */
    /* Data events and their bytes; and those lost because worker threads (never with files, which wait) or, in a shared
     * capture, this program were too slow. */
    uint64_t chunks;
    uint64_t chunk_bytes;
    uint64_t chunks_lost;
    uint64_t chunk_bytes_lost;
    /* Streams; a connection has two. */
    uint64_t streams_created;
    uint64_t streams_terminated;
    /* Memory budget in bytes: in use, peak, and total. In a shared capture, memory_size is the share granted to this
     * program, and the first two are 0, because the capturing process uses the memory (see flowgauge doctor). */
    uint64_t memory_used;
    uint64_t memory_high;
    uint64_t memory_size;
    uint64_t streams_lost; /* streams without any event, because callbacks were too slow and memory for events ran out;
                            * in a shared capture, known at the end */
    uint64_t requests_lost; /* requests (cutoffs, priorities, parameters) that the process of a shared capture refused, or was too slow
                             * to receive */
    uint64_t pkts_kept_away; /* of those received: dropped in the kernel (SCAP_OFFLOAD) because they were not wanted, or by
                              * priority; 0 in a shared capture */
    uint64_t reserved[5];
} scap_stats_t;

/* Callback for an event of a stream. */
typedef void (*scap_callback_t)(stream_t *stream);

/* ---- A capture ------------------------------------------------------------------------------------- */

/*
 * Creates a capture.
 *   device           an interface ("eth0", "any"), a capture file ("file:PATH", or a path), or standard input ("file:-").
 *                    Files: pcap, pcapng, snoop, ERF, plain or compressed with gzip or zstd.
 *   memory_size      memory in bytes for connections and all waiting data: chunks, out-of-order segments, packet records,
 *                    events. SCAP_DEFAULT, or at least 64 KiB; use scap_set_memory() for more than an int can hold. A connection
 *                    takes 738 bytes, with creation or data callbacks 536 more, with worker threads 544 more.
 *   reassembly_mode  SCAP_TCP_FAST, SCAP_TCP_STRICT, SCAP_TCP_WAIT or SCAP_DEFAULT.
 *   need_pkts        non-zero: enable scap_next_stream_packet(), and deliver packets of all protocols. Data events may
 *                    then have packets without data (data_len 0), such as acknowledgements.
 * Returns NULL if the device does not exist or an argument is out of range; scap_errbuf(NULL) returns the reason.
 */
scap_t *scap_create(const char *device, int memory_size, int reassembly_mode, int need_pkts);

/* [ours] Sets the memory budget in bytes. */
int scap_set_memory(scap_t *sc, uint64_t bytes);

/* Captures only packets that match a filter (pcap-filter(7)). NULL or "" removes the filter. */
int scap_set_filter(scap_t *sc, const char *bpf);

/* Sets the cutoff of all streams in bytes: SCAP_UNLIMITED (the default), or 0 for statistics only, without data events. */
int scap_set_cutoff(scap_t *sc, int cutoff);

/* Sets the cutoff of streams of one direction (enum scap_direction). */
int scap_add_cutoff_direction(scap_t *sc, int cutoff, int direction);

/* Sets the cutoff of streams whose first packet matches a filter. The first matching class takes precedence over the
 * cutoff of the direction, and that over the default cutoff. */
int scap_add_cutoff_class(scap_t *sc, int cutoff, const char *bpf);

/* [ours] Sets the priority of streams that match a filter, 0 to 255; the first match applies. The default is 0, the
 * lowest priority. */
int scap_add_priority_class(scap_t *sc, int priority, const char *bpf);

/* [ours] Sets the overlap policy of streams to hosts of a subnet ("10.0.0.0/8", "2001:db8::/32"); the longest matching
 * prefix applies. */
int scap_add_policy(scap_t *sc, const char *subnet, int policy);

/* Sets the number of threads for callbacks, at most 256. With 0 (the default) or 1, and if no data callback is set,
 * callbacks run in the thread of scap_start_capture(). Several threads are pinned to separate cores, as far as there are
 * enough. Reading a file waits for slow callbacks. An interface cannot wait: it is captured in a separate thread, memory
 * fills, and priorities decide what is dropped. */
int scap_set_worker_threads(scap_t *sc, int threads);

/* Sets a parameter (enum scap_parameter) for all streams. */
int scap_set_parameter(scap_t *sc, int parameter, int value);

/* Set the callbacks for the creation of a stream (for a TCP connection, once per direction), for each chunk (full, flush
 * timeout, cutoff reached, end of stream), and for its termination. NULL removes a callback. */
int scap_dispatch_creation(scap_t *sc, void (*callback)(stream_t *stream));
int scap_dispatch_data(scap_t *sc, void (*callback)(stream_t *stream));
int scap_dispatch_termination(scap_t *sc, void (*callback)(stream_t *stream));

/*
 * Captures until the input ends or scap_stop_capture() is called, then terminates all remaining streams, with their
 * callbacks. Returns 0, or an error if the device cannot be opened or disappears, the process of a shared capture dies, or
 * a file is damaged (after processing all readable packets and terminating all streams). A handle can capture only once.
 */
int scap_start_capture(scap_t *sc);

/* Stops the capture; may be called from a callback, another thread or a signal handler. Returns immediately. Packets
 * already in the kernel are processed before scap_start_capture() returns (in a shared capture: those that the capturing
 * process has already processed). Returns SCAP_ESTATE if no capture runs, or in another process. Its errors have no
 * message. */
int scap_stop_capture(scap_t *sc);

/* Gets statistics; during the capture, they are slightly out of date. */
int scap_get_stats(scap_t *sc, scap_stats_t *stats);

/* Frees the capture. While it runs, and thus in callbacks, the call has no effect, and scap_error() returns SCAP_ESTATE. */
void scap_close(scap_t *sc);

/* ---- A stream, in callbacks ------------------------------------------------------------------------ */

/* Discards the rest of the stream. Its statistics continue, and it still has a termination event. */
void scap_discard_stream(scap_t *sc, stream_t *stream);

/* Sets the cutoff of the stream. */
int scap_set_stream_cutoff(scap_t *sc, stream_t *stream, int cutoff);

/* Sets the priority of the stream; higher numbers are more important. */
int scap_set_stream_priority(scap_t *sc, stream_t *stream, int priority);

/* Sets a parameter (enum scap_parameter) of the stream. */
int scap_set_stream_parameter(scap_t *sc, stream_t *stream, int parameter, int value);

/* In a data callback: keeps the chunk, so that the next data event delivers it together with the next one, contiguously
 * (SCAP_CHUNK_KEPT). If memory is short, or bytes are missing in between, the next chunk is delivered alone. */
int scap_keep_stream_chunk(scap_t *sc, stream_t *stream);

/* Alias of scap_keep_stream_chunk(). */
int scap_keep_chunk(scap_t *sc, stream_t *stream);

/*
 * In a data callback: returns the payload of the chunk's next packet, in the order of capture, including duplicate,
 * reordered and overlapping packets. The payload is not copied: if it is part of the chunk, the pointer is into the chunk.
 * Fills in *header (which may be NULL) with its length and headers. Both are read-only and valid until the callback
 * returns. Returns NULL after the last packet and, with an error code for scap_error(), without need_pkts or outside of a
 * data callback.
 */
char *scap_next_stream_packet(stream_t *stream, struct scap_pkthdr *header);

/* [ours] In a data callback: finds the next run of missing bytes inside the chunk (SCAP_TCP_FAST), which data has as
 * zeros. Returns 1 and sets *start, an index into data, and *length; returns 0 after the last run. */
int scap_next_stream_hole(stream_t *stream, uint32_t *start, uint32_t *length);

/* ---- Errors and texts [ours] ------------------------------------------------------------------------ */

/* Returns the error code of the last failed call on this handle; with NULL, of this thread's last failed call on any
 * handle. SCAP_OK if there was none. */
int scap_error(scap_t *sc);

/* Returns the message of that error: "what: where; hint: what to do". Never NULL; "" if there was no error. Valid until
 * this thread calls scap_errbuf() again. */
const char *scap_errbuf(scap_t *sc);

/* Describes an error code. Never NULL. */
const char *scap_strerror(int code);

/* Name of a stream's status: "active", "fin", "rst", "timeout", "cutoff", "end_of_input", "evicted", "strict".
 * Never NULL. */
const char *scap_status_name(int status);

/* Size of a buffer for the text of an address, including the terminating null byte. */
#define SCAP_ADDRESS_BYTES 46

/* Formats an address (dotted IPv4, or IPv6 per RFC 5952) into a buffer of size bytes, and returns the buffer. Truncates
 * the text if the buffer is too small. Returns NULL if buffer is NULL or size is 0. */
char *scap_address_text(scap_ip_t address, char *buffer, size_t size);

/* Version of the library: "1.0". */
const char *scap_version(void);

#ifdef __cplusplus
}
#endif

#endif

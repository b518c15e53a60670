/*
 * scap.h - stream capture: transport-layer streams as the first-class object of packet capture.
 *
 * The interface of Papadogiannakis, Polychronakis, Markatos: "Scap: Stream-Oriented Network Traffic
 * Capture and Analysis for High-Speed Networks" (IMC 2013), Table 1, built on Flowgauge's engine. What goes
 * beyond the paper is marked [ours]. Compiles as C99 and later and as C++11 and later.
 *
 *   cc program.c $(pkg-config --cflags --libs scap)
 *
 * A program creates a handle, configures it, and starts it; the capture calls it back:
 *
 *   scap_t *sc = scap_create("eth0", SCAP_DEFAULT, SCAP_TCP_FAST, 0);
 *   scap_set_cutoff(sc, 0);
 *   scap_dispatch_termination(sc, stream_close);
 *   scap_start_capture(sc);
 *   scap_close(sc);
 *
 * ERRORS. Functions that return int return 0, or a negative code of enum scap_error_code. scap_create returns
 * NULL. Functions that return nothing, and scap_next_stream_packet, leave a code that scap_error() tells.
 * scap_errbuf() gives the message: what failed, where, and a hint. A failed call changes nothing. Every
 * function may be called with NULL, in a wrong order, or with a handle that was closed: that is an error, too.
 *
 * UNITS. Sizes, cutoffs and offsets are bytes; times are nanoseconds since 1970-01-01 00:00:00 UTC and
 * durations nanoseconds, where nothing else is said; ports are in host byte order. Bytes of streams are
 * bytes of transport payload, packets are packets of the stream with or without payload.
 *
 * DROPPED is what was wanted and lost to overload; DISCARDED is what was not wanted (cutoff, filter,
 * duplicate, outside of its stream). Bytes count one by one; a packet is discarded or dropped where all of its
 * payload is, and captured otherwise.
 *
 * THREADS. Handles are independent of each other. scap_start_capture() blocks its caller; callbacks run
 * in that thread, or, after scap_set_worker_threads(sc, n) with n > 1, in up to n threads at once: then a callback must
 * guard what it shares with other streams, while all events of one connection (both directions) come from one
 * thread, one after the other. While the capture runs only these may be called: scap_stop_capture() from
 * anywhere, a signal handler included; scap_get_stats(), scap_error() and scap_errbuf() from any thread; the
 * functions that take a stream_t from a callback; and, from any thread, [ours] scap_set_cutoff(),
 * scap_add_cutoff_direction(), scap_add_cutoff_class(), scap_add_priority_class(), scap_add_policy() and
 * scap_set_parameter() with all but SCAP_SHARE and SCAP_OFFLOAD: they hold for streams that begin from then on, inactivity timeout, base
 * threshold and overload cutoff for all. In a shared capture policies stay as they are: what is put together there is
 * put together once for all.
 * Everything else answers SCAP_ESTATE.
 * A callback must return: C++ exceptions and longjmp() must not leave it.
 *
 * OWNERSHIP. A handle belongs to the program until scap_close(). A stream_t belongs to the library; it is at
 * one address, and may be looked at, from the first callback for the stream to the return of its termination
 * callback (without creation and data callbacks: during the termination callback only). Its data, and the
 * packets in it, live until the data callback returns. Nothing is to be freed by the program, and nothing in a
 * stream_t is to be written but user_state.
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

/* How TCP segments become a stream. */
enum scap_reassembly_mode {
    /* Goes on past missing data at once; a chunk that has a hole says so (SCAP_CHUNK_HOLE). Needs no
     * handshake and makes the most of a lossy capture. */
    SCAP_TCP_FAST = 1,
    /* Only correctly sequenced data of connections whose handshake was seen, normalised as the receiver
     * does it. Nothing is delivered past missing data. */
    SCAP_TCP_STRICT = 2,
    /* [ours] Waits for missing data until it is clear that it will not come (the receiver acknowledged it, or a limit
     * of bytes or time is reached), then goes on as FAST does. */
    SCAP_TCP_WAIT = 3
};

/* scap_set_parameter(), scap_set_stream_parameter(). */
enum scap_parameter {
    /* Seconds without packets of either direction after which a stream ends, and with it its opposite. Default: TCP 300,
     * UDP 60, others 30. It holds for streams that are there already, too; that of a single stream before it. Where
     * programs share a capture a stream ends for all of them at once, when the longest timeout of those that have it is
     * over: one with a shorter one gets its last chunk and its termination later than alone, and may get more of the
     * stream in between. SCAP_FLUSH_TIMEOUT is each program's own. */
    SCAP_INACTIVITY_TIMEOUT = 1,
    /* Bytes that make a chunk full: 1 to 16 MiB. Default: 16384. 0 [ours]: no chunks, every segment is delivered on its
     * own, in order, from where it was captured. */
    SCAP_CHUNK_SIZE = 2,
    /* Last bytes of a chunk that are repeated at the start of the next: less than the chunk size. Default: 0. */
    SCAP_OVERLAP_SIZE = 3,
    /* Milliseconds (of the capture's clock) after which a chunk is delivered although it is not full; 0: never.
     * Default: 0. */
    SCAP_FLUSH_TIMEOUT = 4,
    /* Per cent of the memory below which nothing is dropped for its priority: 0 to 100. Default: 50. Not for
     * single streams. */
    SCAP_BASE_THRESHOLD = 5,
    /* Bytes of a stream behind which its packets are dropped first when memory runs out; SCAP_UNLIMITED: none.
     * Default: none. Not for single streams. */
    SCAP_OVERLOAD_CUTOFF = 6,
    /* One of enum scap_reassembly_mode. */
    SCAP_REASSEMBLY_MODE = 7,
    /* One of enum scap_policy. Default: SCAP_POLICY_FIRST. */
    SCAP_REASSEMBLY_POLICY = 8,
    /* 1: the capture of an interface is shared with other processes that capture there, if it can be; 0: this
     * process captures for itself. The environment variable FLOWGAUGE_SHARE=0 says the same. Default: 1. Where it
     * could not be shared scap_errbuf says why, while scap_error is 0. Not for single streams. */
    SCAP_SHARE = 9,
    /* [ours] 1: what is behind a cutoff, and streams that were discarded, the kernel does not copy, where it can
     * (CAP_BPF, Linux 5.12); all counts as without. 0: all comes. The environment variable FLOWGAUGE_OFFLOAD=0 says the
     * same. Default: 1. Of a shared capture who has the interface decides. Not for single streams. */
    SCAP_OFFLOAD = 10
};

/* Which copy counts where segments overlap: that which the receiver's system would keep. */
enum scap_policy {
    SCAP_POLICY_FIRST = 0, /* the copy that came first */
    SCAP_POLICY_LAST = 1,  /* the copy that came last */
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

/* Whose bytes a stream has. The client is who opened the connection: it sent the SYN, or, where that was not seen,
 * whom the first packet speaks for. */
enum scap_direction {
    SCAP_CLIENT_TO_SERVER = 0,
    SCAP_SERVER_TO_CLIENT = 1
};

/* How a stream stands, or ended: stream_t.status. */
enum scap_status {
    SCAP_STATUS_ACTIVE = 0,
    SCAP_STATUS_CLOSED_FIN = 1,     /* closed by FIN */
    SCAP_STATUS_CLOSED_RST = 2,     /* reset */
    SCAP_STATUS_CLOSED_TIMEOUT = 3, /* no packets for the inactivity timeout */
    SCAP_STATUS_CUTOFF = 4,         /* active, and its cutoff is reached: no further data events. The last one (SCAP_CHUNK_CUTOFF) says so
                                     * already; the termination event says how the stream ended */
    SCAP_STATUS_END_OF_INPUT = 5,   /* [ours] the capture ended before the stream */
    SCAP_STATUS_EVICTED = 6,        /* [ours] the longest idle, when the table was full */
    SCAP_STATUS_STRICT = 7          /* [ours] active, and SCAP_TCP_STRICT has stopped: bytes are missing (missing_at_end), or the
                                     * handshake was not seen. No further data events */
};

/* What was wrong with a stream, or'ed: stream_t.error. */
enum scap_stream_error {
    SCAP_ERROR_INCOMPLETE_HANDSHAKE = 1, /* the handshake was not, or not wholly, seen */
    SCAP_ERROR_INVALID_SEQUENCE = 2,     /* packets had sequence numbers outside of the window */
    SCAP_ERROR_GAP = 4,                  /* bytes are missing */
    SCAP_ERROR_OVERLAP = 8               /* copies of the same bytes differed */
};

/* About the chunk of a data event, or'ed: stream_t.flags [ours]. */
enum scap_chunk_flag {
    SCAP_CHUNK_HOLE = 1,    /* bytes are missing before or inside of it */
    SCAP_CHUNK_LAST = 2,    /* the stream's last: it ended. (Where its last byte filled the chunk before, there is none.) */
    SCAP_CHUNK_CUTOFF = 4,  /* the stream's last: the cutoff is reached */
    SCAP_CHUNK_TIMEOUT = 8, /* not full: the flush timeout is over */
    SCAP_CHUNK_EARLY = 16,  /* not full: memory was needed */
    SCAP_CHUNK_KEPT = 32,   /* begins with the chunk that was kept */
    SCAP_CHUNK_PACKET = 64  /* one packet of a protocol other than TCP and UDP: nothing is reassembled */
};

/* What functions return when they fail. */
enum scap_error_code {
    SCAP_OK = 0,
    SCAP_EHANDLE = -1,    /* the handle is NULL, was closed, or never was one */
    SCAP_EARGUMENT = -2,  /* an argument is NULL or out of range */
    SCAP_ESTATE = -3,     /* not now: the capture runs, is over, or has not begun; or not from a callback */
    SCAP_EDEVICE = -4,    /* the interface or file cannot be opened or read */
    SCAP_EFILTER = -5,    /* the filter does not compile */
    SCAP_EPARAMETER = -6, /* no such parameter, or not for single streams */
    SCAP_ESTREAM = -7,    /* the stream is NULL, has ended, or is another capture's */
    SCAP_EPACKETS = -8,   /* packets were not asked for (need_pkts) */
    SCAP_ERESOURCE = -9,  /* memory, threads or handles ran out */
    SCAP_EINTERNAL = -10  /* a fault of the library */
};

/* ---- Types ----------------------------------------------------------------------------------------- */

/* A capture: scap_create() to scap_close(). */
typedef struct scap scap_t;

/* An IP address in network byte order, IPv6 or IPv4; an IPv4 address is in its mapped form ::ffff:a.b.c.d, so
 * that sixteen bytes always compare and hash. scap_hdr.ip_version says which of the two it is,
 * scap_address_text() writes either. in6 serves inet_ntop(AF_INET6, ...) and the like; ipv4[3] is what struct
 * in_addr holds as s_addr. */
typedef union scap_ip {
    uint8_t bytes[16];
    uint32_t ipv4[4];
    struct in6_addr in6;
} scap_ip_t;

/* Who sends to whom. */
typedef struct scap_hdr {
    scap_ip_t src_ip;
    scap_ip_t dst_ip;
    uint16_t src_port; /* 0 where the protocol has none */
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

/* What was seen of a stream. */
typedef struct scap_stream_stats {
    uint64_t start;         /* time of the first packet */
    uint64_t end;           /* time of the last packet so far */
    uint64_t bytes;         /* all payload bytes, wanted or not, as the packets' headers say */
    uint64_t pkts;          /* all packets */
    scap_count_t dropped;   /* of these, wanted and lost to overload */
    scap_count_t discarded; /* of these, not wanted: behind the cutoff, duplicates, outside of the stream */
    scap_count_t captured;  /* of these, taken into the stream */
} scap_stream_stats_t;

/* One direction of a connection. */
typedef struct scap_stream {
    scap_hdr_t hdr;
    scap_stream_stats_t stats;
    uint64_t uid; /* [ours] number of the stream, never used again during the capture */
    int status;   /* enum scap_status */
    int error;    /* enum scap_stream_error, or'ed */
    int cutoff;   /* bytes wanted; SCAP_UNLIMITED */
    int priority;
    int chunk_size;
    int flags;                    /* [ours] enum scap_chunk_flag, in data events */
    struct scap_stream *opposite; /* the other direction, never NULL; its stats are of this event, the rest of its own last one.
                                   * While a direction has no packets its counts are 0 and its status is this one's; it has
                                   * events of its own all the same, unless the filter of a shared capture, which judges each
                                   * direction by itself, keeps it out */
    char *data;                   /* the chunk, in data events; not to be written, and NULL in other events */
    uint32_t data_len;            /* bytes in it; the paper has both names */
    uint32_t len;                 /* the same */
    uint64_t offset;              /* [ours] position of data[0] in the stream, missing bytes counted */
    uint64_t missing;             /* [ours] bytes missing right before data[0] */
    uint32_t repeated;            /* [ours] how many of the first bytes the chunk before had, too (overlap, kept) */
    uint32_t holes;               /* [ours] runs of missing bytes inside of the chunk, see scap_next_stream_hole() */
    uint64_t processing_time;     /* nanoseconds spent in data callbacks for this stream, before this event */
    uint64_t chunks;              /* data events so far, this one included */
    void *user_state;             /* the program's own; NULL at first */
    uint64_t missing_at_end;      /* [ours] when it has ended: bytes known to be missing behind its last chunk; where
                                   * SCAP_TCP_STRICT has stopped: bytes missing there */
} stream_t;

/* A packet of a chunk. */
struct scap_pkthdr {
    struct timeval ts; /* capture time */
    uint32_t caplen;   /* bytes captured */
    uint32_t len;      /* bytes on the wire */
    uint64_t time;     /* [ours] capture time in nanoseconds */
    int64_t offset;    /* [ours] position in the stream of the packet's first payload byte; INT64_MIN where it is not known */
    uint32_t headers_len; /* [ours] bytes captured before its transport payload: from its link header on */
    uint32_t payload_len; /* [ours] captured bytes of payload */
    const char *headers;  /* [ours] those before the payload */
    uint64_t reserved;
};

/* What a capture has seen so far. */
typedef struct scap_stats {
    /* Of all streams, as in scap_stream_stats_t. */
    uint64_t bytes;
    uint64_t pkts;
    scap_count_t dropped;
    scap_count_t discarded;
    scap_count_t captured;
    /* Every packet that reached the capture: received = delivered + lost + refused. */
    uint64_t pkts_received;
    uint64_t pkts_delivered;
    uint64_t pkts_lost;    /* wanted: by the network card, the kernel's ring, for want of memory or priority */
    uint64_t pkts_refused; /* not wanted: filter, cutoff, malformed, duplicate, outside of the stream */
    /* Data events, and the bytes in them; and those that were lost on their way: for which worker threads left no memory
     * (never with files: they wait), or, where programs share a capture, this one was too slow. */
    uint64_t chunks;
    uint64_t chunk_bytes;
    uint64_t chunks_lost;
    uint64_t chunk_bytes_lost;
    /* Streams; both directions of a connection count. */
    uint64_t streams_created;
    uint64_t streams_terminated;
    /* Bytes of the memory budget: in use, at most so far, and all. Where programs share a capture memory_size is what this
     * one was granted, and the first two are 0: memory is in use in the process that captures (flowgauge doctor). */
    uint64_t memory_used;
    uint64_t memory_high;
    uint64_t memory_size;
    uint64_t streams_lost; /* streams of which no event came: callbacks were too slow, and there was no memory for their
                            * events; where programs share a capture, known at the end */
    uint64_t requests_lost; /* what was asked for (cutoffs, priorities, parameters) and the process that captures for several
                             * programs refused, or was too slow to hear */
    uint64_t pkts_kept_away; /* of those received: not copied by the kernel (SCAP_OFFLOAD), as they were not wanted, or lost by
                              * priority; of a shared capture 0 */
    uint64_t reserved[5];
} scap_stats_t;

/* Called for an event of a stream. */
typedef void (*scap_callback_t)(stream_t *stream);

/* ---- A capture ------------------------------------------------------------------------------------- */

/*
 * Creates a capture.
 *   device           an interface ("eth0", "any"), a capture file ("file:PATH", or a path), or standard input ("file:-").
 *                    Files: pcap, pcapng, snoop, ERF, plain or compressed with gzip or zstd.
 *   memory_size      bytes for connections and for everything that waits: chunks, segments out of order, packet records, events.
 *                    SCAP_DEFAULT, or at least 64 KiB. scap_set_memory() sets more than an int holds. A connection takes 738
 *                    bytes, with creation or data callbacks 536 more, with worker threads 544 more.
 *   reassembly_mode  SCAP_TCP_FAST, SCAP_TCP_STRICT, SCAP_TCP_WAIT or SCAP_DEFAULT.
 *   need_pkts        not 0: scap_next_stream_packet() is wanted, and streams have packets of every protocol. Data events
 *                    may have packets and no bytes then (data_len 0): acknowledgements, for instance.
 * Returns NULL when the device is not there or an argument is out of range; scap_errbuf(NULL) says why.
 */
scap_t *scap_create(const char *device, int memory_size, int reassembly_mode, int need_pkts);

/* [ours] Sets the memory budget in bytes. */
int scap_set_memory(scap_t *sc, uint64_t bytes);

/* Packets that do not match (pcap-filter(7)) are not captured at all. NULL or "" removes the filter. */
int scap_set_filter(scap_t *sc, const char *bpf);

/* Bytes wanted of each stream: SCAP_UNLIMITED (the default), or 0 for statistics only: no data events. */
int scap_set_cutoff(scap_t *sc, int cutoff);

/* The same for streams of one direction (enum scap_direction). */
int scap_add_cutoff_direction(scap_t *sc, int cutoff, int direction);

/* The same for streams that match a filter: each direction is judged by its own first packet. The first class that matches decides, before the direction's cutoff, and
 * that before the default one. */
int scap_add_cutoff_class(scap_t *sc, int cutoff, const char *bpf);

/* [ours] Priority of streams that match a filter, 0 to 255; the first that matches decides. The default is 0, the lowest: a
 * higher number is more important. */
int scap_add_priority_class(scap_t *sc, int priority, const char *bpf);

/* [ours] Overlap policy of streams towards hosts of a subnet ("10.0.0.0/8", "2001:db8::/32"); the longest prefix decides. */
int scap_add_policy(scap_t *sc, const char *subnet, int policy);

/* Threads that callbacks run in, up to 256: more are SCAP_EARGUMENT. 0 (the default) and 1: in that of scap_start_capture(), which is also where they run when no
 * data callback is set. Each of several is kept on a core of its own, as long as there are as many. A file waits for slow ones; an
 * interface cannot and is captured in another thread, so memory fills and priorities decide. */
int scap_set_worker_threads(scap_t *sc, int threads);

/* Sets a parameter (enum scap_parameter) for all streams. */
int scap_set_parameter(scap_t *sc, int parameter, int value);

/* What is called when a stream is created (both directions of a TCP connection, one after the other), when a chunk
 * of it is ready (full, flush timeout, cutoff reached, stream ended), and when it has ended. NULL removes a callback. */
int scap_dispatch_creation(scap_t *sc, void (*callback)(stream_t *stream));
int scap_dispatch_data(scap_t *sc, void (*callback)(stream_t *stream));
int scap_dispatch_termination(scap_t *sc, void (*callback)(stream_t *stream));

/*
 * Captures until the input ends or scap_stop_capture() is called; then every stream that is left ends, with its
 * callbacks. Returns 0 then, or an error when the device cannot be opened or goes away, the process that captures for several
 * programs dies, or a file is damaged (after everything that could be read, and the ends of all streams). A handle captures once.
 */
int scap_start_capture(scap_t *sc);

/* Ends the capture soon: from a callback, another thread or a signal handler. It returns at once; what the kernel
 * holds already is still processed before scap_start_capture() returns (where programs share a capture: what the process
 * that captures has processed by then, and no more). SCAP_ESTATE when nothing runs, or in another process; its errors have
 * no message. */
int scap_stop_capture(scap_t *sc);

/* What was seen so far; during the capture, as of a moment ago. */
int scap_get_stats(scap_t *sc, scap_stats_t *stats);

/* Frees the capture. Not while it runs, and so not from a callback: then it is left alone, and scap_error() tells
 * SCAP_ESTATE. */
void scap_close(scap_t *sc);

/* ---- A stream, in callbacks ------------------------------------------------------------------------ */

/* Wants no further data of the stream. Its statistics go on; it still has a termination event. */
void scap_discard_stream(scap_t *sc, stream_t *stream);

/* Sets the cutoff of the stream. */
int scap_set_stream_cutoff(scap_t *sc, stream_t *stream, int cutoff);

/* Sets the priority of the stream: a higher number is more important. */
int scap_set_stream_priority(scap_t *sc, stream_t *stream, int priority);

/* Sets a parameter (enum scap_parameter) of the stream. */
int scap_set_stream_parameter(scap_t *sc, stream_t *stream, int parameter, int value);

/* In a data callback: the next data event delivers this chunk and the next, contiguous, and says so (SCAP_CHUNK_KEPT). Where
 * memory is short, or bytes are missing in between, the next chunk comes alone. */
int scap_keep_stream_chunk(scap_t *sc, stream_t *stream);

/* The same by its other name. */
int scap_keep_chunk(scap_t *sc, stream_t *stream);

/*
 * In a data callback: the next packet of the chunk, as captured and in the order of capture, duplicate, reordered and
 * overlapping ones included. Returns its payload, which is not copied: it points into the chunk wherever the chunk has
 * it. Fills header (which may be NULL), which says how long that is and where its headers are. Both are valid until the
 * callback returns, and only to be read. Returns NULL after the last one, and, with an error that scap_error() tells,
 * without need_pkts or outside of a data callback.
 */
char *scap_next_stream_packet(stream_t *stream, struct scap_pkthdr *header);

/* [ours] In a data callback: the next run of missing bytes inside of the chunk (SCAP_TCP_FAST); where they should be,
 * data has zeros. Returns 1 and sets *start, a position in data, and *length; 0 after the last one. */
int scap_next_stream_hole(stream_t *stream, uint32_t *start, uint32_t *length);

/* ---- Errors and texts [ours] ------------------------------------------------------------------------ */

/* The code of the last call that failed on this handle; with NULL, of this thread's last one on any. SCAP_OK if none did. */
int scap_error(scap_t *sc);

/* The message of the same: "what: where; hint: what to do". Never NULL; "" if nothing failed. It lives until this thread
 * calls scap_errbuf again. */
const char *scap_errbuf(scap_t *sc);

/* What an error code means in general. Never NULL. */
const char *scap_strerror(int code);

/* Name of a stream's status: "active", "fin", "rst", "timeout", "cutoff", "end_of_input", "evicted", "strict".
 * Never NULL. */
const char *scap_status_name(int status);

/* Bytes that an address takes as text, its terminating zero included. */
#define SCAP_ADDRESS_BYTES 46

/* Writes an address as text (IPv4 in dots, IPv6 per RFC 5952) into a buffer of size bytes and returns the buffer. The
 * text is cut when the buffer is small; NULL when it is NULL or has no bytes. */
char *scap_address_text(scap_ip_t address, char *buffer, size_t size);

/* Version of the library: "1.0". */
const char *scap_version(void);

#ifdef __cplusplus
}
#endif

#endif

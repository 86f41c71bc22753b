/* The publisher: one connection, and what the server has not accepted yet, to say it again. */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include "load.h"

#define STALL_NS 20000000000
#define AGAIN_US 5000
#define TURN_NS 100000000
#define MAX_IN_FLIGHT (RING - 1024)

uint64_t next_version;

static struct conn conn = {.publishes = 1};
static const struct protocol *protocol;
static int port;
static int lost;
static uint64_t oldest;              /* not accepted */
static uint64_t next_answer;         /* what the next answer is about, where they come in order */
static uint8_t is_accepted[RING];

void use_publisher(const struct protocol *its, int at) {
    protocol = its;
    port = at;
    oldest = next_answer = next_version;
    lost = 1;
}

void accepted(uint64_t version) {
    if (version < oldest || version >= next_version) return; /* heard before the connection broke */
    is_accepted[version % RING] = 1;
    for (; oldest < next_version && is_accepted[oldest % RING]; oldest++) is_accepted[oldest % RING] = 0;
}

void accepted_next(void) {
    accepted(next_answer++);
}

void accepted_id(uint16_t id) {
    accepted(oldest + ((uint64_t)id - 1 + 65535 - oldest % 65535) % 65535);
}

static uint64_t subscribers_of_an_update(void) {
    return (uint64_t)options.subscribers * (uint64_t)options.per_client / (uint64_t)options.topics;
}

static void heard(void) {
    if (read_from(&conn, protocol) > 0) return;
    if (!options.reconnect) fail("the server closed the publisher's connection");
    lost = 1;
}

static void write_out(const uint8_t *data, size_t size) {
    while (size) {
        ssize_t sent = send(conn.fd, data, size, MSG_NOSIGNAL);
        if (sent < 0 && errno != EAGAIN) {
            if (!options.reconnect) fail("the server does not take what is published");
            lost = 1;
            return;
        }
        if (sent > 0) data += sent, size -= (size_t)sent;
        if (!size) return;
        struct pollfd waiting = {conn.fd, POLLIN | POLLOUT, 0};
        poll(&waiting, 1, 1000);
        if (waiting.revents & ~POLLOUT) heard();
        if (lost) return;
    }
}

static void send_version(uint64_t version, int confirm) {
    uint8_t out[512];
    write_out(out, protocol->publish(out, version, confirm));
}

/* Until the server takes updates; then says again what it has not accepted. */
static void open_again(void) {
    int64_t began_ns = now_ns();
    while (lost) {
        if (conn.fd > 0) close(conn.fd);
        conn.have = 0;
        conn.fd = connected(port, 0);
        conn.state = OPENING;
        if (conn.fd > 0) {
            lost = 0;
            protocol->greet(&conn);
            while (!lost && conn.state == OPENING) {
                struct pollfd waiting = {conn.fd, POLLIN, 0};
                if (poll(&waiting, 1, 1000) > 0) heard();
            }
            if (conn.state != READY) lost = 1; /* refused for now */
        } else if (!options.reconnect) {
            fail("nobody listens there");
        }
        if (lost && now_ns() - began_ns > STALL_NS) fail("the server does not come back");
        if (lost) usleep(AGAIN_US);
    }
    next_answer = oldest;
    uint64_t end = next_version;
    for (uint64_t version = oldest; version < end && !lost; version++) send_version(version, 1);
}

/* Until something happens or time is up. */
static void listen_until(int64_t until_ns) {
    struct pollfd waiting[2] = {{conn.fd, POLLIN, 0}, {progress, POLLIN, 0}};
    int64_t left = until_ns - now_ns();
    struct timespec timeout = {left > 0 ? left / 1000000000 : 0, left > 0 ? left % 1000000000 : 0};
    ppoll(waiting + (lost ? 1 : 0), lost ? 1 : 2, &timeout, NULL);
    if (!lost && waiting[0].revents) heard();
    if (waiting[1].revents) {
        eventfd_t count;
        eventfd_read(progress, &count);
    }
    check_workers();
}

static void publish(int confirm) {
    uint64_t version = next_version++;
    atomic_store(&shared->published_ns[version % RING], wall_ns());
    send_version(version, confirm);
    if (!confirm && protocol == &nats) accepted_next(); /* nobody will say so */
}

static int64_t earlier(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static void publish_steadily(double rate, int64_t end_ns) {
    if (lost) open_again();
    for (int64_t next_ns = now_ns(); now_ns() < end_ns && !lost;) {
        if (now_ns() >= next_ns && next_version - oldest < MAX_IN_FLIGHT) {
            publish(options.reconnect);
            next_ns += (int64_t)(1e9 / rate);
        }
        listen_until(earlier(next_ns, end_ns));
    }
}

void publish_at_rate(double rate, double seconds) {
    publish_steadily(rate, now_ns() + (int64_t)(seconds * 1e9));
    if (lost) fail("the server closed the publisher's connection");
}

void publish_until_lost(double rate) {
    publish_steadily(rate, INT64_MAX);
}

void publish_in_window(double window, double seconds) {
    if (lost) open_again();
    uint64_t each = subscribers_of_an_update();
    uint64_t under_way = (uint64_t)((window - 1) * (double)each);
    int64_t moved_ns = now_ns(), end_ns = moved_ns + (int64_t)(seconds * 1e9);
    for (uint64_t before = 0; now_ns() < end_ns;) {
        uint64_t all = (next_version - options.first) * each;
        atomic_store(&shared->wanted, all < under_way ? 0 : all - under_way);
        uint64_t held = atomic_load(&shared->held);
        if (all - held <= under_way && next_version - oldest < MAX_IN_FLIGHT) publish(0);
        else listen_until(earlier(now_ns() + TURN_NS, end_ns));
        if (held + oldest != before) {
            before = held + oldest;
            moved_ns = now_ns();
        } else if (now_ns() - moved_ns > STALL_NS) {
            fail("the server stalled");
        }
    }
}

void publish_count(uint64_t count, uint64_t in_flight) {
    uint64_t end = next_version + count, before = 0;
    int64_t moved_ns = now_ns();
    if (in_flight > MAX_IN_FLIGHT) fail("too many in flight");
    while (next_version < end || oldest < next_version) {
        if (lost) open_again();
        else if (next_version < end && next_version - oldest < in_flight) publish(1);
        else listen_until(now_ns() + TURN_NS);
        if (oldest != before) {
            before = oldest;
            moved_ns = now_ns();
        } else if (now_ns() - moved_ns > STALL_NS) {
            fail("the server accepts nothing");
        }
    }
}

int wait_until_held(double quiet_s) {
    uint64_t all = (next_version - options.first) * subscribers_of_an_update();
    int64_t began_ns = now_ns(), quiet_ns = (int64_t)(quiet_s * 1e9);
    atomic_store(&shared->wanted, all);
    while (atomic_load(&shared->held) < all) {
        int64_t moved_ns = shared->moved_ns > began_ns ? shared->moved_ns : began_ns;
        if (now_ns() - moved_ns > quiet_ns) return 0;
        listen_until(now_ns() + TURN_NS / 10);
    }
    return 1;
}

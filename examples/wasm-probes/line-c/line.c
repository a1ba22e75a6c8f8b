// A probe of servers with a line protocol: it connects, reads a greeting, sends a line and checks
// the answer. README.md lists its settings.
#include "sonde.h"

#ifdef __wasi__ // with wasi-libc, the connection is an ordinary socket
#include <errno.h>
#include <poll.h>
#include <unistd.h>
#endif

#define MAX_LINE 4096 // bytes of one line, and of each setting
#define KEY "line"    // of the held connection

typedef struct {
  int fd;
  int64_t until;    // deadline by the monotonic clock; 0: that of the attempt
  int used, filled; // bytes of buf that were consumed, and that were received
  char buf[MAX_LINE];
} reader;

static const char *port, *server_name, *greeting, *send, *expect, *contains;

static const struct {
  const char *name, **text;
} texts[] = {
    {"port", &port}, {"server_name", &server_name}, {"greeting", &greeting},
    {"send", &send}, {"expect", &expect}, {"contains", &contains},
};

// load reads the settings. It returns the name of one that is too long, or 0. The texts follow each other, because
// each page of memory that an attempt changes is copied back after it.
static const char *load(void) {
  static char all[sizeof texts / sizeof *texts * MAX_LINE];
  char *next = all;
  for (unsigned i = 0; i < sizeof texts / sizeof *texts; i++) {
    int n = sonde_text(texts[i].name, next, MAX_LINE);
    if (n < 0) return texts[i].name;
    *texts[i].text = next;
    next += n + 1;
  }
  return 0;
}

static bool one_line(const char *s) {
  while (*s && *s != '\r' && *s != '\n') s++;
  return !*s;
}

// check checks the settings when the configuration is loaded.
static int check(void) {
  const char *wrong = load();
  if (wrong) return sonde_refuse(wrong, "must not be longer than 4095 bytes");
  for (unsigned i = 0; i < sizeof texts / sizeof *texts; i++)
    if (!one_line(*texts[i].text)) return sonde_refuse(texts[i].name, "must be one line");
  if (*server_name && !sonde_bool("tls")) return sonde_refuse("server_name", "needs tls = true");
  if (!*send && *expect) return sonde_refuse("expect", "needs send; greeting is for what the server says first");
  if (!*send && *contains) return sonde_refuse("contains", "needs send");
  if (sonde_int("answer_timeout") < 0) return sonde_refuse("answer_timeout", "must not be negative");
  return 0;
}

// receive waits for bytes. It returns their number, or 0 when the server has closed the connection.
static int receive(reader *r) {
  int room = MAX_LINE - r->filled;
  if (room == 0) return -SONDE_E2BIG;
#ifdef __wasi__
  struct pollfd readable = {.fd = r->fd, .events = POLLIN};
  int64_t left = r->until - sonde_clock(SONDE_MONOTONIC);
  int ready = poll(&readable, 1, r->until == 0 ? -1 : left > 0 ? (int)(left / 1000000 + 1) : 0);
  if (ready == 0) return -SONDE_ETIMEDOUT;
  int n = ready < 0 ? ready : (int)read(r->fd, r->buf + r->filled, (size_t)room);
  return n < 0 ? -errno : n;
#else
  return sonde_read(r->fd, r->buf + r->filled, room);
#endif
}

// take returns the next complete line, without its end, or 0.
static const char *take(reader *r) {
  for (int i = r->used; i < r->filled; i++) {
    if (r->buf[i] != '\n') continue;
    char *line = r->buf + r->used;
    r->buf[i > r->used && r->buf[i - 1] == '\r' ? i - 1 : i] = 0;
    r->used = i + 1;
    return line;
  }
  for (int i = r->used; i < r->filled; i++) r->buf[i - r->used] = r->buf[i];
  r->filled -= r->used;
  r->used = 0;
  return 0;
}

// late reports an attempt that has received no line.
static sonde_outcome late(int n) {
  switch (n) {
  case 0:
    return sonde_fail("tcp.closed", "the server closed before it had answered");
  case -SONDE_E2BIG:
    return sonde_fail("line.long", "the server sent a line of more than 4096 bytes");
  case -SONDE_ETIMEDOUT:
    return sonde_fail("line.timeout", "the server sent no line in time");
  }
  return sonde_fail_with("read", n);
}

// next waits for a line. If there is none, *end is the outcome of the attempt.
static const char *next(reader *r, sonde_outcome *end) {
  int64_t patience = sonde_int("answer_timeout");
  r->until = patience ? sonde_clock(SONDE_MONOTONIC) + patience : 0;
  sonde_deadline(r->fd, SONDE_READ, patience);
  for (;;) {
    const char *line = take(r);
    if (line) return line;
    int n = receive(r);
    if (n <= 0) return *end = late(n), (const char *)0;
    r->filled += n;
  }
}

static bool begins(const char *s, const char *with) {
  while (*with && *s == *with) s++, with++;
  return !*with;
}

static bool has(const char *s, const char *text) {
  for (; *s; s++)
    if (begins(s, text)) return true;
  return !*text;
}

// judge compares the answer with the expected one, and with the previous one.
static sonde_outcome judge(const char *answer) {
  static char before[MAX_LINE];
  if (!begins(answer, expect)) return sonde_fail("line.expect", "got ", answer, ", which does not begin with ", expect);
  if (!has(answer, contains)) return sonde_fail("line.expect", "got ", answer, ", in which there is no ", contains);
  int n = sonde_input(SONDE_STATE, before, MAX_LINE - 1);
  before[n > 0 && n < MAX_LINE ? n : 0] = 0;
  sonde_output(SONDE_NEXT_STATE, answer, sonde_length(answer));
  if (*before && sonde_bool("warn_on_change") && !(begins(answer, before) && begins(before, answer)))
    return sonde_warning("line.changed", "got ", answer, ", it was ", before);
  return sonde_success("got ", answer);
}

// talk sends the line and reads the answer.
static sonde_outcome talk(reader *r, bool fresh) {
  sonde_outcome end = SONDE_UNKNOWN;
  const char *line = "";
  if (fresh && *greeting) {
    if (!(line = next(r, &end))) return end;
    if (!begins(line, greeting)) return sonde_fail("line.greeting", "got ", line, ", which does not begin with ", greeting);
  }
  if (!*send) return sonde_success(*line ? line : "connected");
  char out[MAX_LINE + 2];
  int n = sonde_write(r->fd, out, sonde_join(out, sizeof out, send, "\r\n"));
  if (n < 0) return sonde_fail_with("write", n);
  line = next(r, &end);
  return line ? judge(line) : end;
}

static int connect(void) {
  char address[MAX_LINE + 1], options[MAX_LINE + 16];
  sonde_join(address, sizeof address, ":", port);
  sonde_join(options, sizeof options, *server_name ? "server_name=" : "", server_name);
  return sonde_dial(sonde_bool("tls") ? "tls" : "tcp", address, options);
}

static sonde_outcome attempt(void) {
  static reader r;
  load();
  int kept = sonde_bool("keep") ? sonde_held(KEY) : -SONDE_ENOENT;
  r = (reader){.fd = kept < 0 ? connect() : kept};
  if (r.fd < 0) return sonde_fail_with("connect", r.fd);
  sonde_outcome end = talk(&r, kept < 0);
  bool good = end == SONDE_SUCCESS || end == SONDE_WARNING;
  if (good && sonde_bool("keep") && r.used == r.filled) sonde_hold(r.fd, KEY);
  else sonde_close(r.fd);
  sonde_metric(SONDE_COUNTER, good ? "answers" : "misses", 1);
  sonde_log(SONDE_LOG_DEBUG, good ? "answered" : "not answered");
  return end;
}

SONDE_PLUGIN(attempt)
SONDE_CONFIGURE(check)

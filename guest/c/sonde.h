// sonde.h: the C SDK for Sonde plugins, with wasi-libc or without any libc. README.md shows how to use it.
// Include it in one source file. Strings end with a zero byte. A function that returns an int returns a
// negative SONDE_E… on error. The Go package wasmhost/abi is the specification.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifndef SONDE_MAX_INPUT // maximum bytes of the settings, and of the target
#define SONDE_MAX_INPUT 16384
#endif

// An attempt is unknown when it could not be made and the target is not to blame. A warning counts as a
// success; its detail describes the problem.
typedef enum { SONDE_UNKNOWN = 0, SONDE_SUCCESS = 1, SONDE_WARNING = 2, SONDE_FAILURE = 3 } sonde_outcome;

enum {
  SONDE_E2BIG = 1, SONDE_EAGAIN = 6, SONDE_EBADF = 8, SONDE_ECONNREFUSED = 14, SONDE_ECONNRESET = 15,
  SONDE_EHOSTUNREACH = 23, SONDE_EINVAL = 28, SONDE_EIO = 29, SONDE_EMFILE = 33, SONDE_ENETUNREACH = 40,
  SONDE_ENOENT = 44, SONDE_ENOSPC = 51, SONDE_ENOTSUP = 58, SONDE_EPIPE = 64, SONDE_EPROTO = 65,
  SONDE_ETIMEDOUT = 73, SONDE_ENOTCAPABLE = 76,
};
enum { SONDE_SETTINGS = 1, SONDE_TARGET = 2, SONDE_STATE = 3, SONDE_ERROR = 4, SONDE_KEPT = 5 };    // of sonde_input
enum { SONDE_DETAIL = 1, SONDE_REASON = 2, SONDE_NEXT_STATE = 3, SONDE_FIELD = 4, SONDE_KEEP = 5 }; // of sonde_output
enum { SONDE_LOG_DEBUG = 1, SONDE_LOG_INFO = 2, SONDE_LOG_WARN = 3, SONDE_LOG_ERROR = 4 };          // of sonde_log
enum { SONDE_GAUGE = 1, SONDE_COUNTER = 2, SONDE_ATTEMPT = 3, SONDE_REAL = 0, SONDE_MONOTONIC = 1 };   // of metric, clock
enum { SONDE_READ = 1, SONDE_WRITE = 2 };                                           // of sonde_deadline
enum { SONDE_REMOTE = 1, SONDE_LOCAL = 2, SONDE_ALPN = 3, SONDE_TLS = 4, SONDE_CERTIFICATE = 5 };
// The host's functions. Those whose names end in _ have a shorter form below.
#define SONDE_HOST(name) __attribute__((import_module("sonde_v1"), import_name(#name)))
SONDE_HOST(input) int sonde_input(int kind, void *buf, int limit);
SONDE_HOST(output) int sonde_output(int kind, const void *p, int n);
SONDE_HOST(log) int sonde_log_(int level, const char *p, int n);
SONDE_HOST(log_level) int sonde_log_level(void);
SONDE_HOST(metric) int sonde_metric_(int kind, const char *name, int n, double value);
SONDE_HOST(clock) int64_t sonde_clock(int id);
SONDE_HOST(remaining) int64_t sonde_remaining(void);
SONDE_HOST(random) int sonde_random(void *buf, int n);
SONDE_HOST(resolve) int sonde_resolve(const char *name, int n, char *buf, int limit);
SONDE_HOST(dial) int sonde_dial_(const char *network, int network_n, const char *address, int address_n,
                                 const char *options, int options_n, int flags, int timeout_ms);
SONDE_HOST(start_tls) int sonde_start_tls_(int fd, const char *options, int n);
SONDE_HOST(conn_info) int sonde_conn_info(int fd, int what, char *buf, int limit);
SONDE_HOST(deadline) int sonde_deadline(int fd, int which, int64_t ns);
SONDE_HOST(read) int sonde_read(int fd, void *buf, int n);
SONDE_HOST(write) int sonde_write(int fd, const void *p, int n);
SONDE_HOST(close) int sonde_close(int fd);
SONDE_HOST(hold) int sonde_hold_(int fd, const char *key, int n);
SONDE_HOST(held) int sonde_held_(const char *key, int n, int flags);

// SONDE_PLUGIN exports the function that makes an attempt. SONDE_CONFIGURE exports the function that checks
// a probe's settings: it returns 0, or the result of sonde_refuse.
#define SONDE_EXPORT(name) __attribute__((export_name(#name)))
#define SONDE_PLUGIN(attempt) \
  SONDE_EXPORT(sonde_abi_v1) void sonde_abi_v1(void) {} \
  SONDE_EXPORT(sonde_run) int sonde_run(void) { return sonde_begin_() ? (int)attempt() : (int)SONDE_UNKNOWN; }
#define SONDE_CONFIGURE(check) \
  SONDE_EXPORT(sonde_configure) int sonde_configure(void) { return sonde_begin_() ? check() : 1; }

static inline int sonde_length(const char *s) {
  for (int n = 0;; n++) if (!s[n]) return n;
}

static inline bool sonde_same_(const char *a, const char *b, int n) {
  while (n > 0 && a[n - 1] == b[n - 1]) n--;
  return n == 0;
}

// sonde_join writes the concatenation of strings to buf and returns its length. If it does not fit, it is
// truncated and the result is -SONDE_E2BIG.
#define sonde_join(buf, size, ...) sonde_join_(buf, size, (const char *[]){__VA_ARGS__, 0})
static inline int sonde_join_(char *buf, int size, const char **parts) {
  int n = 0;
  for (; *parts; parts++)
    for (const char *s = *parts; *s; s++, n++)
      if (n < size - 1) buf[n] = *s;
  buf[n < size ? n : size - 1] = 0;
  return n < size ? n : -SONDE_E2BIG;
}

// sonde_decimal writes a number to the end of buf and returns its first digit.
static inline const char *sonde_decimal(int64_t n, char buf[21]) {
  uint64_t rest = n < 0 ? -(uint64_t)n : (uint64_t)n;
  char *p = buf + 20;
  for (*p = 0; p == buf + 20 || rest > 0; rest /= 10) *--p = (char)('0' + rest % 10);
  if (n < 0) *--p = '-';
  return p;
}

// sonde_success, sonde_warning, sonde_fail and sonde_unknown report the result of an attempt: return what
// they return. A reason is a stable code such as "redis.loading". The detail is the concatenation of the
// other arguments.
#define sonde_success(...) sonde_end_(SONDE_SUCCESS, "", (const char *[]){__VA_ARGS__, 0})
#define sonde_warning(reason, ...) sonde_end_(SONDE_WARNING, reason, (const char *[]){__VA_ARGS__, 0})
#define sonde_fail(reason, ...) sonde_end_(SONDE_FAILURE, reason, (const char *[]){__VA_ARGS__, 0})
#define sonde_unknown(reason, ...) sonde_end_(SONDE_UNKNOWN, reason, (const char *[]){__VA_ARGS__, 0})
static inline sonde_outcome sonde_end_(sonde_outcome outcome, const char *reason, const char **detail) {
  static char text[4096 + 1];
  sonde_join_(text, sizeof text, detail);
  sonde_output(SONDE_DETAIL, text, sonde_length(text));
  if (*reason) sonde_output(SONDE_REASON, reason, sonde_length(reason));
  return outcome;
}

// sonde_refuse reports a wrong setting and its problem, such as "must not be empty".
static inline int sonde_refuse(const char *setting, const char *problem) {
  sonde_output(SONDE_FIELD, setting, sonde_length(setting));
  return sonde_unknown("", problem), 1;
}

// sonde_keep, in SONDE_CONFIGURE's check, hands the host up to 256 KiB that were computed from the settings.
// sonde_kept writes them to buf in the attempts with these settings, and returns their number. It is 0 if the
// host could not keep them: then the attempt computes them itself.
static inline int sonde_keep(const void *p, int n) { return sonde_output(SONDE_KEEP, p, n); }
static inline int sonde_kept(void *buf, int size) {
  int n = sonde_input(SONDE_KEPT, buf, size);
  return n > size ? -SONDE_E2BIG : n;
}

typedef struct { const char *p, *end; } sonde_span; // a part of the settings' JSON
static char sonde_json_[SONDE_MAX_INPUT], sonde_lines_[SONDE_MAX_INPUT];
static inline bool sonde_take_(sonde_span *s, char c) {
  while (s->p < s->end && (*s->p == ' ' || *s->p == '\t' || *s->p == '\n' || *s->p == '\r')) s->p++;
  return s->p < s->end && *s->p == c && s->p++;
}

static inline sonde_span sonde_quoted_(sonde_span *s) { // s starts after the first quote
  const char *begin = s->p;
  while (s->p < s->end && *s->p != '"') s->p += *s->p == '\\' && s->p + 1 < s->end ? 2 : 1;
  return (sonde_span){begin, s->p < s->end ? s->p++ : s->p};
}

static inline sonde_span sonde_value_(sonde_span *s) {
  const char *begin = s->p;
  for (int depth = 0; s->p < s->end;) {
    char c = *s->p;
    if (depth == 0 && (c == ',' || c == '}' || c == ']')) break;
    s->p++;
    if (c == '"') sonde_quoted_(s);
    depth += (c == '{' || c == '[') - (c == '}' || c == ']');
  }
  return (sonde_span){begin, s->p};
}

static inline bool sonde_is_(sonde_span s, const char *name, int n) {
  return s.end - s.p == n && sonde_same_(s.p, name, n);
}

static inline sonde_span sonde_member_(sonde_span s, const char *name, int n) {
  char digits[21];
  bool list = sonde_take_(&s, '[');
  bool object = !list && sonde_take_(&s, '{');
  for (int i = 0; list || (object && sonde_take_(&s, '"')); i++) {
    sonde_span key;
    if (list) key = (sonde_span){sonde_decimal(i, digits), digits + 20};
    else key = sonde_quoted_(&s), sonde_take_(&s, ':');
    sonde_span value = sonde_value_(&s);
    if (sonde_is_(key, name, n)) return value;
    if (!sonde_take_(&s, ',')) break;
  }
  return (sonde_span){0};
}

// The settings of a call, so that their JSON is read once.
static struct { sonde_span name, value; } sonde_index_[256]; // a manifest has no more
static int sonde_indexed_;
static inline bool sonde_begin_(void) {
  int n = sonde_input(SONDE_SETTINGS, sonde_json_, SONDE_MAX_INPUT);
  sonde_span s = {sonde_json_, sonde_json_ + (n < 0 || n > SONDE_MAX_INPUT ? 0 : n)};
  if (s.p == s.end) return sonde_unknown("", "the settings are larger than SONDE_MAX_INPUT"), false;
  sonde_take_(&s, '{');
  for (n = 0; n < (int)(sizeof sonde_index_ / sizeof *sonde_index_) && sonde_take_(&s, '"'); n++, sonde_take_(&s, ',')) {
    sonde_index_[n].name = sonde_quoted_(&s), sonde_take_(&s, ':');
    sonde_index_[n].value = sonde_value_(&s);
  }
  sonde_indexed_ = n;
  return true;
}

static inline sonde_span sonde_setting_(const char *name, int n) {
  for (int i = 0; i < sonde_indexed_; i++)
    if (sonde_is_(sonde_index_[i].name, name, n)) return sonde_index_[i].value;
  return (sonde_span){0};
}

// sonde_find returns the JSON of a setting: "port", "tls.name" in a block, "names.0" in a list.
static inline sonde_span sonde_find(const char *path) {
  sonde_span at = {0};
  for (int i = 0, n = 0; *path; path += n + (path[n] == '.'), i++) {
    for (n = 0; path[n] && path[n] != '.';) n++;
    at = i == 0 ? sonde_setting_(path, n) : sonde_member_(at, path, n);
  }
  return at;
}

static inline uint32_t sonde_hex_(sonde_span *s) {
  uint32_t n = 0;
  for (int i = 0; i < 4 && s->p < s->end; i++, s->p++) n = n * 16 + (uint32_t)(*s->p & 15) + (*s->p > '9') * 9u;
  return n;
}

static inline int sonde_character_(sonde_span *s, char *out) { // at most 4 bytes
  const char *from = "bfnrt", *to = "\b\f\n\r\t";
  char c = *s->p++;
  if (c != '\\' || s->p == s->end) return *out = c, 1;
  for (c = *s->p++; *from && *from != c; to++) from++;
  if (c != 'u') return *out = *from ? *to : c, 1;
  uint32_t r = sonde_hex_(s);
  if (r >> 10 == 0x36 && s->end - s->p >= 6 && s->p[0] == '\\' && s->p[1] == 'u')
    s->p += 2, r = 0x10000 + ((r & 0x3ff) << 10) + (sonde_hex_(s) & 0x3ff);
  if (r >> 11 == 0x1b) r = 0xfffd; // half of a surrogate pair
  int n = r < 0x80 ? 1 : r < 0x800 ? 2 : r < 0x10000 ? 3 : 4;
  for (int i = n - 1; i > 0; i--, r >>= 6) out[i] = (char)(0x80 | (r & 0x3f));
  out[0] = (char)(n == 1 ? r : (0xf00u >> n) | r);
  return n;
}

// sonde_text writes a setting to buf and returns its length; 0 if it is not set.
static inline int sonde_text(const char *path, char *buf, int size) {
  sonde_span s = sonde_find(path);
  int n = 0, k = 0;
  char c[4];
  if (sonde_take_(&s, '"')) s = sonde_quoted_(&s);
  for (buf[0] = 0; s.p < s.end; n += k, buf[n] = 0) {
    if (n + (k = sonde_character_(&s, c)) >= size) return -SONDE_E2BIG;
    for (int i = 0; i < k; i++) buf[n + i] = c[i];
  }
  return n;
}

// sonde_int returns a whole number, or a duration in nanoseconds; 0 if it is not set.
static inline int64_t sonde_int(const char *path) {
  sonde_span s = sonde_find(path);
  uint64_t n = 0;
  bool negative = sonde_take_(&s, '-');
  for (sonde_take_(&s, '+'); s.p < s.end && *s.p >= '0' && *s.p <= '9';) n = n * 10 + (uint64_t)(*s.p++ - '0');
  return (int64_t)(negative ? -n : n);
}

static inline bool sonde_bool(const char *path) { return sonde_take_((sonde_span[]){sonde_find(path)}, 't'); }

// sonde_line writes a value of an input that consists of lines to buf, truncated to its size. SONDE_TARGET
// has "name", "address" and "port" ("8080 http"), SONDE_ERROR has "reason" and "detail". Nth counts from 0.
static inline int sonde_line(int kind, const char *key, int nth, char *buf, int size) {
  int n = 0, length = sonde_input(kind, sonde_lines_, SONDE_MAX_INPUT), key_n = sonde_length(key);
  const char *p = sonde_lines_, *end = p + (length < 0 || length > SONDE_MAX_INPUT ? 0 : length);
  for (buf[0] = 0; p < end; p++) {
    bool here = end - p > key_n && p[key_n] == '=' && sonde_same_(p, key, key_n) && nth-- == 0;
    for (p += here ? key_n + 1 : 0; p < end && *p != '\n'; p++) {
      char c = *p == '\\' && p + 1 < end ? *++p == 'n' ? '\n' : *p == 'r' ? '\r' : *p : *p;
      if (here && n < size - 1) buf[n++] = c;
    }
    if (here) return buf[n] = 0, n;
  }
  return -SONDE_ENOENT;
}

// sonde_fail_with reports an attempt that ended with an error of a host call: a failure if the target is to
// blame, else unknown. The host adds the reason.
static inline sonde_outcome sonde_fail_with(const char *operation, int error) {
  char detail[1024], digits[21];
  bool target = -error == SONDE_ECONNREFUSED || -error == SONDE_ECONNRESET || -error == SONDE_EHOSTUNREACH ||
      -error == SONDE_ENETUNREACH || -error == SONDE_EIO || -error == SONDE_ENOENT || -error == SONDE_EPIPE ||
      -error == SONDE_EPROTO || -error == SONDE_ETIMEDOUT;
  if (sonde_line(SONDE_ERROR, "detail", 0, detail, sizeof detail) <= 0)
    sonde_join(detail, sizeof detail, "error ", sonde_decimal(-error, digits));
  return target ? sonde_fail("", operation, ": ", detail) : sonde_unknown("", operation, ": ", detail);
}

// sonde_dial connects; options are for TLS, "server_name=example.org\n". See dial in wasmhost/abi.
static inline int sonde_dial(const char *net, const char *address, const char *options) {
  return sonde_dial_(net, sonde_length(net), address, sonde_length(address), options, sonde_length(options), 0, 0);
}
static inline int sonde_start_tls(int fd, const char *s) { return sonde_start_tls_(fd, s, sonde_length(s)); }
static inline int sonde_hold(int fd, const char *key) { return sonde_hold_(fd, key, sonde_length(key)); }
static inline int sonde_held(const char *key) { return sonde_held_(key, sonde_length(key), 0); }
static inline int sonde_log(int level, const char *s) { return sonde_log_(level, s, sonde_length(s)); }
static inline int sonde_metric(int kind, const char *s, double n) { return sonde_metric_(kind, s, sonde_length(s), n); }

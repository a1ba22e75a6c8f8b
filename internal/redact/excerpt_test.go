package redact_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/sonde-probe/sonde/internal/redact"
)

func TestAnExcerptIsOneLineWithoutSecrets(t *testing.T) {
	for text, want := range map[string]string{
		"": "",
		`{"status":"down","db":{"error":"too many\n connections"}}`:                          `{"status":"down","db":{"error":"too many\n connections"}}`,
		"panic: nil map\r\n\tat main.go:3\n":                                                 "panic: nil map at main.go:3",
		"<!DOCTYPE html><html><head><style>p{}</style><title>502 Bad Gateway</title></head>": "502 Bad Gateway",
		"<p>a<script src='x":                               "a",
		`{"password":"hunter2","user":"bob"}`:              `{"password":(sensitive),"user":"bob"}`,
		`{"db_password": "hun\"ter2 x"}`:                   `{"db_password": (sensitive)}`,
		`{"apiKey":"short`:                                 `{"apiKey":(sensitive)`,
		"Authorization: Bearer abc def":                    "Authorization: Bearer (sensitive) def",
		"secret=hunter2&next=1":                            "secret=(sensitive)&next=1",
		"cannot connect to postgres://app:hunter2@db/shop": "cannot connect to postgres://(sensitive)@db/shop",
		"the key AKIAIOSFODNN7EXAMPLE0 is wrong":           "the key (sensitive) is wrong",
		"eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP": "(sensitive).(sensitive).dozjgNryP",
		"x -----BEGIN PRIVATE KEY-----\nMII\n-----END":                               "x (sensitive)",
		"a very ordinary counterrevolutionary-minded word":                           "a very ordinary counterrevolutionary-minded word",
		"\x00\x01\x02":     "",
		"\xff\xfe":         "",
		"red \x1b[31mred":  "red \ufffd[31mred",
		"from \u202eright": "from \ufffdright",
	} {
		if got := redact.Excerpt([]byte(text), 100); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
	if got := redact.Excerpt([]byte(strings.Repeat("word ", 1000)), 20); got != "word word word wo…" && got != "word word word…" {
		t.Errorf("got %q of a long text", got)
	}
	if got := redact.Excerpt([]byte(strings.Repeat("word ", 204)+"AKIAIOSFODNN7EXAMPLE0"), 2000); strings.Contains(got, "AKIA") {
		t.Errorf("got half a secret: %q", got[1000:])
	}
}

func FuzzExcerpt(f *testing.F) {
	f.Add([]byte(`{"password":"hunter2"}`), 100)
	f.Add([]byte("<p>ä\n\x1b"), 7)
	f.Fuzz(func(t *testing.T, text []byte, limit int) {
		limit = 4 + (limit&0x7fffffff)%200
		got := redact.Excerpt(text, limit)
		if len(got) > limit || !utf8.ValidString(got) || strings.ContainsAny(got, "\n\r\t\x1b\x00\u202e") {
			t.Errorf("got %q of %q", got, text)
		}
	})
}

func BenchmarkExcerpt(b *testing.B) {
	for name, text := range map[string]string{
		"short": `{"status":"down","error":"too many connections"}`,
		"long":  strings.Repeat(`{"status":"down","error":"too many connections"},`, 30),
		"HTML":  strings.Repeat("<html><head><title>502 Bad Gateway</title></head><body>", 20),
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				redact.Excerpt([]byte(text), 120)
			}
		})
	}
}

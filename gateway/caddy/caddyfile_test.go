package sondecaddy

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

func unmarshal(text string) (*Upstreams, error) {
	u := new(Upstreams)
	return u, u.UnmarshalCaddyfile(caddyfile.NewTestDispenser(text))
}

func TestEachSettingOfACaddyfileIsRead(t *testing.T) {
	for text, want := range map[string]string{
		"sonde 10.0.0.7:80 [::1]:81": `{"servers":["10.0.0.7:80","[::1]:81"]}`,
		`sonde 10.0.0.7:80 {
			http /ready {
				port 8080
				scheme https
				header Host shop.example
				header X-A 1
				header X-A 2
				status 200-299 404
				body_contains ok
			}
			period 250ms
			timeout 100ms
			success_threshold 2
			failure_threshold 5
			weight 10.0.0.7:80 50
			panic 40%
			quorum 1
			slow_start 1d
		}`: `{"servers":["10.0.0.7:80"],"http":{"path":"/ready","port":8080,"scheme":"https",` +
			`"headers":{"Host":["shop.example"],"X-A":["1","2"]},"status":["200-299","404"],"body_contains":"ok"},` +
			`"period":250000000,"timeout":100000000,"success_threshold":2,"failure_threshold":5,` +
			`"weights":{"10.0.0.7:80":50},"panic":"40%","quorum":1,"slow_start":86400000000000}`,
		`sonde {
			follow http://127.0.0.1:9650 web
			token {env.SONDE_TOKEN}
		}`: `{"follow":{"url":"http://127.0.0.1:9650","group":"web","token":"{env.SONDE_TOKEN}"}}`,
	} {
		u, err := unmarshal(text)
		if err != nil {
			t.Errorf("%s\n%v", text, err)
			continue
		}
		if got, err := json.Marshal(u); err != nil || string(got) != want {
			t.Errorf("%s\ngot  %s, %v\nwant %s", text, got, err, want)
		}
	}
}

func TestMistakesInACaddyfileAreNamed(t *testing.T) {
	for setting, want := range map[string]string{
		"perod 1s":                         `unknown setting "perod"`,
		"period":                           "wrong argument count",
		"period 1s 2s":                     "wrong argument count",
		"period -1s":                       `"-1s" is not a duration`,
		"period soon":                      `"soon" is not a duration`,
		"failure_threshold 0":              `"0" is not a number from 1`,
		"weight 10.0.0.7:80":               "wrong argument count",
		"weight 10.0.0.7:80 257":           `"257" is not a number from 0 to 256`,
		"quorum -1":                        `"-1" is not a number`,
		"http /a /b":                       "wrong argument count",
		"http {\n header X\n }":            "wrong argument count",
		"http {\n headers X y\n }":         `unknown setting "headers" of http`,
		"http {\n port 65536\n }":          `"65536" is not a number from 1 to 65535`,
		"http {\n status\n }":              "wrong argument count",
		"follow http://127.0.0.1:9650":     "wrong argument count",
		"token x":                          "token must come after follow",
		"follow http://127.0.0.1:9650 a b": "wrong argument count",
	} {
		if _, err := unmarshal("sonde 10.0.0.7:80 {\n" + setting + "\n}"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", setting, err, want)
		}
	}
}

func TestSettingsThatAreNotPossibleAreNamed(t *testing.T) {
	for text, want := range map[string]string{
		"sonde":                                                      "there are no servers",
		"sonde 10.0.0.7":                                             `server "10.0.0.7": is not an address: write HOST:PORT`,
		"sonde 10.0.0.7:http":                                        `server "10.0.0.7:http": the port must be a number from 1 to 65535`,
		"sonde 10.0.0.7:0":                                           `server "10.0.0.7:0": the port must be a number from 1 to 65535`,
		"sonde :80":                                                  `server ":80": is not an address`,
		"sonde 10.0.0.7:80 10.0.0.7:80":                              `duplicate server "10.0.0.7:80"`,
		"sonde a:80 {\n weight b:80 5\n }":                           `weight for "b:80", which is not one of the servers`,
		"sonde a:80 {\n panic 0\n }":                                 "panic",
		"sonde a:80 {\n quorum 2\n }":                                "quorum is 2; it must be from 0 to the number of servers",
		"sonde a:80 {\n timeout 9000h\n }":                           "is not a duration",
		"sonde a:80 {\n period 1ms\n }":                              "period",
		"sonde a:80 {\n http {\n status x\n}\n}":                     "status",
		"sonde a:80 {\n follow http://127.0.0.1:9650 web\n }":        "follow excludes servers",
		"sonde {\n follow http://127.0.0.1:9650 web\n period 1s\n }": "follow excludes servers",
		"sonde {\n follow nowhere web\n }":                           "nowhere",
		"sonde {\n follow http://127.0.0.1:9650 \"\"\n }":            "must not be empty",
	} {
		u, err := unmarshal(text)
		if err == nil {
			err = u.open()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
		if err := u.Cleanup(); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	sources.Range(func(key, _ any) bool { t.Errorf("%v is open", key); return true })
}

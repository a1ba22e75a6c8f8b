package webhook_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/internal/httpauth"
	"github.com/sonde-probe/sonde/notify"
	"github.com/sonde-probe/sonde/notify/webhook"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/dialtest"
	"github.com/sonde-probe/sonde/tests/notifytest"
)

// request is a request that a receiver has got.
type request struct {
	http.Header
	body string
}

// receiver starts a receiver that responds with a status, and returns a sender to it.
func receiver(t testing.TB, status int, c webhook.Config) (notify.Sender, *[]request) {
	t.Helper()
	var got []request
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = append(got, request{r.Header, string(body)})
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, "no thanks")
	}))
	t.Cleanup(server.Close)
	c.URL = server.URL + "/hook?key=s3cret"
	s, name := notifytest.SenderOf(t, c)
	if strings.Contains(name, "s3cret") || strings.HasSuffix(name, "hook") {
		t.Errorf("the receiver's name is %s", name)
	}
	return s, &got
}

func notice() notify.Notice {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	return notify.Notice{
		Subject: notify.Subject{Kind: notify.KindTarget, Name: `web["a"]`}, Firing: true, State: "not_ready", Severity: probe.SeverityCritical,
		Labels: map[string]string{"team": "shop"}, Reason: probe.ReasonHTTPStatus, Detail: "status 503: $(name) \"\n", StartsAt: at, At: at,
	}
}

func TestTheBodyIsJSONWithWhatIsTold(t *testing.T) {
	for body, want := range map[string]string{
		"": `{"detail":"status 503: $(name) \"\n","kind":"target","labels":{"team":"shop"},"name":"web[\"a\"]","reason":"http.status","severity":"critical","startsAt":"2026-01-02T03:04:05Z","state":"not_ready","status":"firing","summary":"web[\"a\"] is not ready: http.status"}`,
		`{"text": "$(summary) of $(labels.team)$(labels.none): $(detail)", "n": 12345678901234567890, "list": [true, null, "$$(name)"]}`: `{"list":[true,null,"$(name)"],"n":12345678901234567890,"text":"web[\"a\"] is not ready: http.status of shop: status 503: $(name) \"\n"}`,
		`"$(status) $(endsAt)"`: `"firing "`,
	} {
		s, got := receiver(t, 204, webhook.Config{Body: body})
		if err := s.Send(t.Context(), []notify.Notice{notice()}); err != nil {
			t.Fatal(err)
		}
		if text := (*got)[0].body; text != want {
			t.Errorf("%s: got %s, want %s", body, text, want)
		}
	}
	s, got := receiver(t, 200, webhook.Config{Body: `"$(status) $(endsAt)"`})
	n := notice()
	n.Firing, n.EndsAt = false, n.StartsAt.Add(time.Minute)
	if err := s.Send(t.Context(), []notify.Notice{n}); err != nil || (*got)[0].body != `"resolved 2026-01-02T03:05:05Z"` {
		t.Errorf("got %v, %v", *got, err)
	}
}

// A receiver verifies a request according to Standard Webhooks, and recognizes repeated ones.
func TestRequestsAreSigned(t *testing.T) {
	key := []byte("0123456789abcdef")
	for _, secret := range []string{string(key), "whsec_" + base64.StdEncoding.EncodeToString(key)} {
		s, got := receiver(t, 200, webhook.Config{Secret: secret})
		other := notice()
		other.At = other.At.Add(time.Second)
		again := notice()
		again.Repeated = true
		moved := notice() // the labels of the target have changed since
		moved.Labels = map[string]string{"team": "other"}
		for _, n := range []notify.Notice{notice(), notice(), other, again, moved} {
			if err := s.Send(t.Context(), []notify.Notice{n}); err != nil {
				t.Fatal(err)
			}
		}
		for _, r := range *got {
			mac := hmac.New(sha256.New, key)
			mac.Write([]byte(r.Get("webhook-id") + "." + r.Get("webhook-timestamp") + "." + r.body))
			if want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)); r.Get("webhook-signature") != want {
				t.Errorf("the signature is %s, want %s", r.Get("webhook-signature"), want)
			}
			if at, err := strconv.ParseInt(r.Get("webhook-timestamp"), 10, 64); err != nil || time.Since(time.Unix(at, 0)).Abs() > time.Hour {
				t.Errorf("the timestamp is %s", r.Get("webhook-timestamp"))
			}
		}
		ids := []string{(*got)[0].Get("webhook-id"), (*got)[1].Get("webhook-id"), (*got)[2].Get("webhook-id"), (*got)[3].Get("webhook-id"), (*got)[4].Get("webhook-id")}
		if ids[0] != ids[1] || ids[1] == ids[2] || ids[0] == ids[3] || ids[0] == ids[4] || !strings.HasPrefix(ids[0], "msg_") {
			t.Errorf("the IDs are %v", ids)
		}
	}
}

func TestWhichAnswersAreFinal(t *testing.T) {
	for status, rejected := range map[int]bool{400: true, 413: true, 422: true, 401: false, 403: false, 404: false, 408: false, 425: false, 429: false, 302: false, 500: false, 503: false} {
		s, got := receiver(t, status, webhook.Config{})
		err := s.Send(t.Context(), []notify.Notice{notice()})
		if err == nil || errors.Is(err, notify.ErrRejected) != rejected || len(*got) != 1 || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("status %d: rejected should be %v: %v, after %d requests", status, rejected, err, len(*got))
		}
	}
	s, _ := notifytest.SenderOf(t, webhook.Config{URL: "http://127.0.0.1:1/?key=s3cret"})
	if err := s.Send(t.Context(), []notify.Notice{notice()}); err == nil || errors.Is(err, notify.ErrRejected) || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("without a server the error is %v", err)
	}
}

func TestASensitiveValueAcrossTheCutIsNotShown(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = io.WriteString(w, strings.Repeat("x", 192)+notifytest.Sensitive)
	}))
	defer server.Close()
	s, _ := notifytest.SenderOf(t, webhook.Config{URL: server.URL})
	err := s.Send(t.Context(), []notify.Notice{notice()})
	if err == nil || !strings.HasSuffix(err.Error(), "xxx(sensiti") {
		t.Errorf("got %v", err)
	}
}

func TestARenewedCertificateReplacesTheNotifier(t *testing.T) {
	authority := dialtest.NewAuthority(t)
	certFile, keyFile := dialtest.Files(t, authority.Sign(t, time.Hour, "sonde"))
	c := webhook.Config{URL: "https://127.0.0.1/hook", TLS: &notify.TLS{CertFile: certFile, KeyFile: keyFile}}
	specs := make([]notify.Spec, 3)
	c.Fill(&specs[0])
	c.Fill(&specs[1])
	renewed, _ := dialtest.Files(t, authority.Sign(t, 2*time.Hour, "sonde"))
	if err := os.Rename(renewed, certFile); err != nil {
		t.Fatal(err)
	}
	c.Fill(&specs[2])
	if specs[0].Files != specs[1].Files || specs[0].Files == specs[2].Files {
		t.Errorf("the digests are %x, %x, and after the renewal %x", specs[0].Files, specs[1].Files, specs[2].Files)
	}
}

func TestAReceiverThatIsNotVerifiedMayHaveTheCertificateOfAnAppliance(t *testing.T) {
	t.Setenv("GODEBUG", "x509negativeserial=1") // as in cmd/engine
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{dialtest.WithNegativeSerial(t, dialtest.NewAuthority(t).Sign(t, time.Hour, "localhost"))}}
	server.StartTLS()
	defer server.Close()
	no := false
	s, _ := notifytest.SenderOf(t, webhook.Config{URL: server.URL, TLS: &notify.TLS{Verify: &no}})
	if err := s.Send(t.Context(), []notify.Notice{notice()}); err != nil {
		t.Error(err)
	}
	_ = s.(io.Closer).Close()
}

func TestTheConnectionIsClosedWithTheSender(t *testing.T) {
	states := make(chan http.ConnState, 10)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) { states <- state }
	server.Start()
	defer server.Close()
	s, _ := notifytest.SenderOf(t, webhook.Config{URL: server.URL})
	if err := s.Send(t.Context(), []notify.Notice{notice()}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []http.ConnState{http.StateNew, http.StateActive, http.StateIdle} {
		if got := <-states; got != want {
			t.Fatalf("the connection is %v, want %v", got, want)
		}
	}
	if err := s.(io.Closer).Close(); err != nil {
		t.Error(err)
	}
	if got := <-states; got != http.StateClosed {
		t.Errorf("the connection is %v", got)
	}
}

func TestConfigurationsAreChecked(t *testing.T) {
	for text, c := range map[string]webhook.Config{
		"url must be the URL of a receiver":                      {URL: "hook"},
		"body is not JSON":                                       {Body: `{"text": $(summary)}`},
		"body has more than one JSON value":                      {Body: `{} {}`},
		"body has the unknown variable $(smmary)":                {Body: `{"a": ["$(smmary)"]}`},
		"body has the unknown variable $(labels.)":               {Body: `"$(labels.)"`},
		"body has 16385 bytes, at most 16384":                    {Body: `"` + strings.Repeat("x", 16383) + `"`},
		"secret is not base64 after whsec_":                      {Secret: "whsec_%"},
		"secret has fewer than 16 bytes":                         {Secret: "short"},
		"timeout is 1ms":                                         {Timeout: time.Millisecond},
		"resend_every is 1s":                                     {ResendEvery: time.Second},
		"token cannot be combined with the header Authorization": {Token: "t", Headers: map[string][]string{"authorization": {"x"}}},
		"": {Body: `{"a": "$$(b) $(labels.team) $(c"}`},
	} {
		if c.URL == "" {
			c.URL = "https://example.com/hook"
		}
		if err := c.Check(); text == "" && err != nil || text != "" && (err == nil || !strings.Contains(err.Error(), text)) {
			t.Errorf("%+v: got %v, want %s", c, err, text)
		}
	}
}

// Whatever a target's responses, the body of a request is JSON, and a text in it never adds a field.
func FuzzBody(f *testing.F) {
	f.Add(`{"text": "$(summary): $(detail)"}`, `", "admin": true, "x": "`)
	f.Add(`["$(labels.team)"]`, "$(detail)\x00\xff")
	f.Add(``, "</script>")
	f.Fuzz(func(t *testing.T, body, detail string) {
		c := webhook.Config{URL: "http://example.com", Body: body}
		if c.Check() != nil {
			return
		}
		n := notice()
		plain := webhook.Render(t, c, &n)
		n.Detail, n.Labels["team"] = detail, detail
		hostile := webhook.Render(t, c, &n)
		if a, b := shape(t, plain), shape(t, hostile); body != "" && a != b {
			t.Errorf("%s became %s", plain, hostile)
		}
	})
}

// shape returns a JSON value without its texts.
func shape(t *testing.T, text []byte) string {
	t.Helper()
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	var blank func(any) any
	blank = func(v any) any {
		switch v := v.(type) {
		case string:
			return ""
		case []any:
			for i := range v {
				v[i] = blank(v[i])
			}
		case map[string]any:
			for name := range v {
				v[name] = blank(v[name])
			}
		}
		return v
	}
	out, _ := json.Marshal(blank(v))
	return string(out)
}

// If a receiver repeats the credentials of a request, they do not get into logs; if it redirects, it gets them only
// once.
func TestCredentialsAreSentAndNotShown(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("geheim\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, c := range map[string]webhook.Config{
		"Basic YTpnZWhlaW0=": {BasicAuth: &httpauth.Basic{Username: "a", Password: "geheim"}},
		"Bearer geheim":      {BearerTokenFile: file},
	} {
		for _, status := range []int{http.StatusUnauthorized, http.StatusTemporaryRedirect} {
			var got []string
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				got = append(got, r.Header.Get("Authorization"))
				w.Header().Set("Location", "/elsewhere")
				w.WriteHeader(status)
				_, _ = io.WriteString(w, "who is "+r.Header.Get("Authorization"))
			}))
			c.URL = server.URL
			s, _ := notifytest.SenderOf(t, c)
			err := s.Send(t.Context(), []notify.Notice{notice()})
			_, secret, _ := strings.Cut(want, " ")
			if err == nil || strings.Contains(err.Error(), secret) || len(got) != 1 || got[0] != want {
				t.Errorf("%d: the receiver got %q, and the error is %v", status, got, err)
			}
			server.Close()
		}
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	for want, c := range map[string]webhook.Config{
		"bearer_token_file": {BearerTokenFile: file},
		"token":             {Token: "a", BasicAuth: &httpauth.Basic{Username: "a"}},
		"basic_auth":        {Headers: map[string][]string{"AUTHORIZATION": {"x"}}, BasicAuth: &httpauth.Basic{Username: "a"}},
	} {
		c.URL = "http://127.0.0.1:9"
		if wrong, ok := errors.AsType[*probe.FieldError](c.Check()); !ok || wrong.Field != want {
			t.Errorf("got %v, want an error about %s", wrong, want)
		}
	}
}

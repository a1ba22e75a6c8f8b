package api_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"testing"

	"github.com/sonde-probe/sonde/api"
)

func TestANotifierIsTestedForThoseWithTheToken(t *testing.T) {
	tests := 0
	s := server(t, api.Config{Token: token, TestNotifier: func(_ context.Context, name string) (map[string]error, bool) {
		tests++
		return map[string]error{"http://b": nil, "http://a": errors.New("status 401")}, name == "on call"
	}})
	if w := (request{method: http.MethodPost, path: "/v1/notifiers/on%20call/test"}).do(s); w.Code != http.StatusUnauthorized || tests != 0 {
		t.Errorf("without the token: status %d, %d tests", w.Code, tests)
	}
	c := client(t, s)
	c.Token = token
	got, err := c.TestNotifier(t.Context(), "on call")
	want := []api.ReceiverTest{{Receiver: "http://a", Error: "status 401"}, {Receiver: "http://b"}}
	if err != nil || got.Name != "on call" || !slices.Equal(got.Receivers, want) {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := c.TestNotifier(t.Context(), "other"); err == nil {
		t.Error("a notifier that does not exist was tested")
	}
}

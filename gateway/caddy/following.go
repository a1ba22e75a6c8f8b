package sondecaddy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/caddyserver/caddy/v2"

	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/gateway/follow"
	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/probe"
)

// followed is a source that follows a group of another Sonde. While there are no answers it
// keeps what it has, also over reloads.
type followed struct {
	servers *group.Group
	end     context.CancelFunc
	ended   sync.WaitGroup
}

func (s *followed) group() *group.Group { return s.servers }

func (s *followed) observe(string, probe.Observation) {} // the other Sonde makes its attempts

// Destruct implements caddy.Destructor.
func (s *followed) Destruct() error {
	s.end()
	s.ended.Wait()
	return nil
}

// following returns how to make the source for a group of another Sonde, and its key.
func (u *Upstreams) following() (key string, construct caddy.Constructor, err error) {
	settings, err := json.Marshal(u)
	if err != nil {
		return "", nil, err
	}
	if alone, _ := json.Marshal(&Upstreams{Follow: u.Follow}); string(alone) != string(settings) {
		return "", nil, errors.New("follow excludes servers and probe settings: the other Sonde has them")
	}
	replace := caddy.NewReplacer()
	address, token := replace.ReplaceKnown(u.Follow.URL, ""), replace.ReplaceKnown(u.Follow.Token, "")
	if at, err := url.Parse(address); err != nil || at.Host == "" || at.Scheme != "http" && at.Scheme != "https" {
		return "", nil, fmt.Errorf("follow has %q: write the URL of an API, such as http://127.0.0.1:9650", u.Follow.URL)
	}
	f, err := follow.New(follow.Config{
		Client: &api.Client{Base: address, Token: token, HTTP: &http.Client{Transport: follow.NewTransport(nil)}},
		Groups: []string{u.Follow.Group},
		Logger: slog.New(currentLog{}),
	})
	if err != nil {
		return "", nil, err
	}
	key = strings.Join([]string{string(settings), address, token}, "\n") // placeholders may have other values after a reload
	return key, func() (caddy.Destructor, error) {
		ctx, cancel := context.WithCancel(context.Background())
		s := &followed{servers: f.Get(u.Follow.Group), end: cancel}
		s.ended.Go(func() { _ = f.Run(ctx) })
		return s, nil
	}, nil
}

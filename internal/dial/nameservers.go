package dial

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// NameServer is a name server of this machine that does not answer.
type NameServer struct {
	Address    string    // with its port
	Since      time.Time // when it was first asked without an answer
	Unanswered int       // queries in a row
}

const (
	// minUnanswered is after how many queries in a row without an answer a name server is silent: a lookup sends two.
	minUnanswered = 3

	// forgetServer is after how long a name server is forgotten that is not asked any more: resolv.conf has changed.
	forgetServer = 10 * time.Minute
)

// nameServers has the queries without an answer by name server, of all lookups: resolv.conf is of the whole machine.
var nameServers unansweredQueries

type unansweredQueries struct {
	mu  sync.Mutex // guards all
	all map[string]*askedServer
}

// askedServer is a NameServer, and when it was asked last.
type askedServer struct {
	NameServer
	asked time.Time
}

// SilentNameServers returns the name servers that do not answer, sorted by address. It is safe for concurrent use by multiple goroutines.
func SilentNameServers() []NameServer { return nameServers.silent(time.Now()) }

func (u *unansweredQueries) silent(now time.Time) (all []NameServer) {
	u.mu.Lock()
	defer u.mu.Unlock()
	maps.DeleteFunc(u.all, func(_ string, s *askedServer) bool { return now.Sub(s.asked) > forgetServer })
	for _, s := range u.all {
		if s.Unanswered >= minUnanswered {
			all = append(all, s.NameServer)
		}
	}
	slices.SortFunc(all, func(a, b NameServer) int { return strings.Compare(a.Address, b.Address) })
	return all
}

// record records the end of a query that was sent at a time.
func (u *unansweredQueries) record(server string, sent time.Time, answered bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if answered {
		delete(u.all, server)
		return
	}
	s := u.all[server]
	if s == nil {
		s = &askedServer{NameServer: NameServer{Address: server, Since: sent}}
		if u.all == nil {
			u.all = map[string]*askedServer{}
		}
		u.all[server] = s
	}
	s.Unanswered++
	s.asked = time.Now()
}

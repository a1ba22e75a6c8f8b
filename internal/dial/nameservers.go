package dial

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// NameServer is a name server of this machine that does not respond.
type NameServer struct {
	Address    string    // with its port
	Since      time.Time // time of the first of the unanswered queries
	Unanswered int       // unanswered queries in a row
}

const (
	// minUnanswered is the number of unanswered queries in a row after which a name server is silent: a lookup sends two.
	minUnanswered = 3

	// forgetServer is how long a name server is remembered after its last query: later, resolv.conf must have changed.
	forgetServer = 10 * time.Minute
)

// nameServers has the unanswered queries of all lookups by name server: resolv.conf applies to the whole machine.
var nameServers unansweredQueries

type unansweredQueries struct {
	mu  sync.Mutex // guards all
	all map[string]*askedServer
}

// askedServer is a NameServer with the time of its last query.
type askedServer struct {
	NameServer
	asked time.Time
}

// SilentNameServers returns the name servers that do not respond, sorted by address. It is safe for concurrent use by multiple
// goroutines.
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

// record records the result of a query, which was sent at the time sent.
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

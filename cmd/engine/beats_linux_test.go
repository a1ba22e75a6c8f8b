package main

import (
	"net"
	"strings"
	"testing"
	"time"

	beatprobe "github.com/sonde-probe/sonde/builtin/beat"
	"github.com/sonde-probe/sonde/tests/gatewaytest"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
)

// Parts of a configuration of beats. ADDRESS is replaced by the address for datagrams.
const (
	beatEngine = `
engine {
  listen = "127.0.0.1:0"
  state  = "sonde.state"
  resume = "trust"
  beats { listen = "ADDRESS" }
}
target "other" {
  probe "readiness" {
    beat {
      every = "1h"
      token = sensitive("another-horse-battery")
    }
  }
}
`
	beatTarget = `
target "job" {
  probe "readiness" {
    beat {
      every = "1h"
      token = sensitive("correct-horse-battery")
    }
  }
}
`
)

// sendBeat sends a datagram to an engine, and reports whether the engine accepts it or rejects it as replayed.
func (l *lives) sendBeat(address string, datagram []byte) (isAccepted bool) {
	l.Helper()
	accepted := func() float64 { return l.metric(`sonde_beats_total{transport="udp"}`) }
	replayed := func() float64 { return l.metric(`sonde_beats_rejected_total{reason="replayed"}`) }
	acceptedBefore, replayedBefore := accepted(), replayed()
	conn, err := net.Dial("udp", address)
	if err != nil {
		l.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write(datagram); err != nil {
		l.Fatal(err)
	}
	testsync.Until(l, "the datagram to be counted", func() bool {
		isAccepted = accepted() > acceptedBefore
		return isAccepted || replayed() > replayedBefore
	})
	return isAccepted
}

func TestARecordedDatagramOfASenderThatIsAheadNeverCountsAgain(t *testing.T) {
	tier.Slow(t)
	address, err := gatewaytest.FindAddress()
	if err != nil {
		t.Fatal(err)
	}
	engine := strings.ReplaceAll(beatEngine, "ADDRESS", address)
	l := &lives{T: t, dir: t.TempDir()}
	l.write("config.hcl", engine+beatTarget)
	l.start()
	defer func() { l.kill() }()

	recorded := beatprobe.AppendDatagram(nil, "job", "correct-horse-battery", time.Now().Add(24*time.Hour), beatprobe.Report{Status: beatprobe.OK})
	if !l.sendBeat(address, recorded) {
		t.Fatal("the first datagram is rejected")
	}
	isRejected := func(after string) {
		t.Helper()
		if l.sendBeat(address, recorded) {
			t.Errorf("a recorded datagram counts after %s", after)
		}
	}
	testsync.Until(t, "the state file to have its time", func() bool {
		for key := range l.restored().Values {
			if strings.HasPrefix(key, "sent/") {
				return true
			}
		}
		return false
	})
	l.kill()
	l.start()
	isRejected("kill -9")

	l.kill()
	l.write("config.hcl", strings.Replace(engine, "trust", "forget", 1)+beatTarget)
	l.start()
	isRejected("a start that forgets the state")

	l.write("config.hcl", engine)
	l.sonde("reload")
	l.kill()
	l.start() // without the target
	l.write("config.hcl", engine+beatTarget)
	l.sonde("reload")
	isRejected("its target was removed and added")
}

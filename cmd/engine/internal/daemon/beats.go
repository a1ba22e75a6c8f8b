package daemon

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/agent/store"
	"github.com/sonde-probe/sonde/config"
)

// listenForBeats opens the socket for beats by UDP, if one is configured.
func (d *daemon) listenForBeats() (err error) {
	if d.settings.Beats == nil {
		return nil
	}
	if d.datagrams, err = d.beats.Listen(context.Background(), d.settings.Beats.Listen); err != nil {
		return err
	}
	d.log.Info("listening for beats", "udp", d.datagrams.Addr().String())
	return nil
}

// maxBeatAge returns how old a datagram may be.
func (d *daemon) maxBeatAge() time.Duration {
	if d.settings.Beats == nil {
		return 0
	}
	return cmp.Or(d.settings.Beats.MaxAge, config.DefaultBeatAge)
}

// restoreBeats gives the beats that the previous engine has received.
func (d *daemon) restoreBeats(state store.Restored) {
	for key, value := range state.Values {
		target, ok := strings.CutPrefix(key, keyBeat)
		if !ok {
			continue
		}
		if err := d.beats.Restore(target, value, state.Shift); err != nil {
			d.log.Warn("last beat of a target discarded", "target", target, "error", err)
		}
	}
}

// restoreSent gives the latest times in datagrams that the previous engine has received, however long ago and
// whatever resume is: datagrams that were recorded must not count again.
func (d *daemon) restoreSent(state store.Restored) {
	for key, value := range state.Values {
		series, ok := strings.CutPrefix(key, keySent)
		if !ok {
			continue
		}
		if err := d.beats.RestoreSent(series, value); err != nil {
			d.log.Warn("latest time in datagrams of a target discarded: those that were recorded may count again", "key", key, "error", err)
		}
	}
}

// markBeat says that a target has sent a beat.
func (d *daemon) markBeat(target string) {
	if d.state != nil {
		d.state.Mark(keyBeat + target)
	}
}

// markSent says that a target has sent a datagram with a later time.
func (d *daemon) markSent(key string, isUrgent bool) {
	switch {
	case d.state == nil:
	case isUrgent:
		d.state.MarkUrgent(keySent + key)
	default:
		d.state.Mark(keySent + key)
	}
}

package beatprobe

import (
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// What a Registry saves of the times in datagrams, apart from the beats: a beat may be forgotten, and the
// latest time may not, or a recorded datagram counts again. It matters beyond the record of a target only
// while it lies ahead of the wall clock: earlier ones are rejected by record.floor.

// sentKey returns the key of the latest time in the datagrams of a target that were signed with a token. A
// target with another token begins anew, since nothing was recorded that is signed with it. The key does not
// disclose the token.
func sentKey(target, token string) string {
	digest := sign(token, []byte("latest time of "+target)) // no datagram signs such a text
	return hex.EncodeToString(digest[:8]) + "/" + target
}

// Sent returns the value for the state file of a key that RegistryConfig.SentChanged was called with, and
// false if there is none.
func (r *Registry) Sent(key string) ([]byte, bool) {
	_, target, _ := strings.Cut(key, "/")
	r.recordsMu.Lock()
	defer r.recordsMu.Unlock()
	sent, ok := r.removed[key]
	if rec := r.records[target]; rec != nil && sentKey(target, rec.token) == key {
		sent, ok = rec.sent, rec.sent != 0
	}
	return formatSent(sent), ok
}

func formatSent(sent uint64) []byte { return strconv.AppendUint(nil, sent, 10) }

// SentKeys returns the keys that Sent has values of, in no order.
func (r *Registry) SentKeys() []string {
	type series struct{ target, token string }
	var present []series
	r.recordsMu.Lock()
	keys := slices.Collect(maps.Keys(r.removed))
	for target, rec := range r.records {
		if rec.sent != 0 {
			present = append(present, series{target, rec.token})
		}
	}
	r.recordsMu.Unlock()
	for _, s := range present { // without the lock, since each key is a MAC
		keys = append(keys, sentKey(s.target, s.token))
	}
	return keys
}

// RestoreSent takes a value of Sent of an earlier engine, before the target is added.
func (r *Registry) RestoreSent(key string, value []byte) error {
	sent, err := strconv.ParseUint(string(value), 10, 63)
	if err != nil {
		return fmt.Errorf("the latest time in datagrams is %.30q, not one in nanoseconds", value)
	}
	r.recordsMu.Lock()
	defer r.recordsMu.Unlock()
	r.removed[key] = sent
	return nil
}

// keepSent keeps the latest time of a record that gets another token, or is deleted. It needs recordsMu.
func (r *Registry) keepSent(target string, rec *record) {
	if rec.sent != 0 {
		r.removed[sentKey(target, rec.token)] = rec.sent
		rec.sent = 0
	}
}

// takeSent gives a record with a new token the latest time that was kept. It needs recordsMu.
func (r *Registry) takeSent(target string, rec *record) {
	key := sentKey(target, rec.token)
	rec.sent = r.removed[key]
	delete(r.removed, key)
}

// dropSent forgets the times without a record that do not lie ahead of the wall clock, and returns their
// keys. It needs recordsMu.
func (r *Registry) dropSent(wall int64) (keys []string) {
	for key, sent := range r.removed {
		if int64(sent) <= wall {
			delete(r.removed, key)
			keys = append(keys, key)
		}
	}
	return keys
}

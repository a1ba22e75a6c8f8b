package beatprobe

import (
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// The latest datagram times are saved separately from the beats: a lost beat does no harm, but if the latest time is lost, a
// recorded datagram is accepted again. The time must outlive the record of its target only while it is ahead of the wall clock:
// record.floor rejects earlier ones.

// sentKey returns the key for the latest time in the datagrams of a target that are signed with token. A target with a new token
// starts without a time, since no datagram was recorded that is signed with it. The key does not disclose the token.
func sentKey(target, token string) string {
	digest := sign(token, []byte("latest time of "+target)) // no datagram signs such a text
	return hex.EncodeToString(digest[:8]) + "/" + target
}

// Sent returns the value for the state file of a key that RegistryConfig.SentChanged was called with; ok is false if there is none.
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

// SentKeys returns the keys that Sent has values for, in no particular order.
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

// RestoreSent restores a value of Sent that an earlier engine saved. It must be called before the target is added.
func (r *Registry) RestoreSent(key string, value []byte) error {
	sent, err := strconv.ParseUint(string(value), 10, 63)
	if err != nil {
		return fmt.Errorf("invalid latest datagram time %.30q: want nanoseconds", value)
	}
	r.recordsMu.Lock()
	defer r.recordsMu.Unlock()
	r.removed[key] = sent
	return nil
}

// keepSent retains the latest time of a record that is deleted or gets another token. The caller must hold recordsMu.
func (r *Registry) keepSent(target string, rec *record) {
	if rec.sent != 0 {
		r.removed[sentKey(target, rec.token)] = rec.sent
		rec.sent = 0
	}
}

// takeSent moves the retained latest time to a record with a new token. The caller must hold recordsMu.
func (r *Registry) takeSent(target string, rec *record) {
	key := sentKey(target, rec.token)
	rec.sent = r.removed[key]
	delete(r.removed, key)
}

// dropSent discards the retained times that are not ahead of the wall clock, and returns their keys. The caller must hold
// recordsMu.
func (r *Registry) dropSent(wall int64) (keys []string) {
	for key, sent := range r.removed {
		if int64(sent) <= wall {
			delete(r.removed, key)
			keys = append(keys, key)
		}
	}
	return keys
}

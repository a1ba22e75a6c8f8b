package revision

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sonde-probe/sonde/fleet/coord"
)

// partSize is how many bytes a part of a bundle has: etcd accepts requests of 1.5 MiB.
const partSize = 512 << 10

// maxParts bounds the parts of a bundle. One transaction deletes them all: etcd accepts 128 operations.
const maxParts = MaxSize / partSize

func partKey(id string, i int) string { return fmt.Sprintf("%s%s/%04d", keyPart, id, i) }

// upload writes a bundle under an ID of its own. While the lease of its mark lasts, or if a revision refers
// to it, it stays; otherwise the next clean deletes it. It returns the condition that the mark exists.
func upload(ctx context.Context, b coord.Backend, lease coord.Lease, id string, compressed []byte) (mark coord.Condition, err error) {
	mark.Key = keyUpload + id
	made, err := b.Commit(ctx, coord.Transaction{
		If:   []coord.Condition{{Key: keyBundle + id}, {Key: mark.Key}},
		Then: []coord.Change{{Key: keyBundle + id}, {Key: mark.Key, Lease: lease}},
	})
	if err == nil && !made[0] {
		err = errors.New("its ID is in use")
	}
	if err != nil {
		return mark, fmt.Errorf("upload the configuration: %w", err)
	}
	marked, err := b.Get(ctx, mark.Key)
	if err != nil {
		return mark, fmt.Errorf("upload the configuration: %w", err)
	}
	mark.Created = marked.Created
	i := 0
	for part := range slices.Chunk(compressed, partSize) {
		made, err := b.Commit(ctx, coord.Transaction{
			If:   []coord.Condition{mark},
			Then: []coord.Change{{Key: partKey(id, i), Value: part}},
		})
		if err == nil && !made[0] {
			err = coord.ErrLeaseEnded
		}
		if err != nil {
			return mark, fmt.Errorf("upload part %d of the configuration: %w", i+1, err)
		}
		i++
	}
	return mark, nil
}

// Load returns the files of a revision. The error is ErrDamaged if the backend has not what was pushed,
// or ErrLater; after any other, they may be loaded later.
func Load(ctx context.Context, b coord.Backend, r Revision) (*Bundle, error) {
	if r.problem != nil {
		return nil, r.problem
	}
	size := r.Bundle.Size
	if size <= 0 || size > MaxSize {
		return nil, fmt.Errorf("revision %d: %w: it has %d bytes, at most %d are allowed", r.Number, ErrDamaged, size, MaxSize)
	}
	compressed := make([]byte, 0, size)
	for i := 0; len(compressed) < size; i++ {
		part, err := b.Get(ctx, partKey(r.Bundle.ID, i))
		switch {
		case err != nil:
			return nil, fmt.Errorf("revision %d: read part %d: %w", r.Number, i+1, err)
		case len(part.Value) != min(size-len(compressed), partSize):
			return nil, fmt.Errorf("revision %d: %w: part %d is missing, or has another size", r.Number, ErrDamaged, i+1)
		}
		compressed = append(compressed, part.Value...)
	}
	bundle, err := Decode(compressed, r.Bundle.Digest)
	if err != nil {
		return nil, fmt.Errorf("revision %d: %w: %w", r.Number, ErrDamaged, err)
	}
	return bundle, nil
}

// clean deletes revisions beyond MaxHistory, and the bundles to which nothing refers. Several may do that
// at once, beside pushes: a bundle that has neither a mark nor a revision gets neither later, since a new
// revision refers to a bundle with a mark, or to that of a revision which exists.
func clean(ctx context.Context, b coord.Backend) error {
	if err := trim(ctx, b); err != nil {
		return err
	}
	bundles, _, err := b.Range(ctx, keyBundle)
	if err != nil {
		return err
	}
	uploads, _, err := b.Range(ctx, keyUpload) // after the bundles, and before the revisions
	if err != nil {
		return err
	}
	all, err := History(ctx, b)
	if err != nil {
		return err
	}
	used := map[string]bool{}
	for _, e := range uploads {
		used[strings.TrimPrefix(e.Key, keyUpload)] = true
	}
	for _, r := range all {
		if r.problem != nil {
			return nil // it may refer to any
		}
		used[r.Bundle.ID] = true
	}
	for _, e := range bundles {
		id := strings.TrimPrefix(e.Key, keyBundle)
		if used[id] {
			continue
		}
		t := coord.Transaction{
			If:   []coord.Condition{{Key: e.Key, Created: e.Created}, {Key: keyUpload + id}},
			Then: []coord.Change{{Key: e.Key, Delete: true}},
		}
		for i := range maxParts {
			t.Then = append(t.Then, coord.Change{Key: partKey(id, i), Delete: true})
		}
		if _, err := b.Commit(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

// trim deletes the revisions beyond MaxHistory.
func trim(ctx context.Context, b coord.Backend) error {
	entries, _, err := b.Range(ctx, keyRevision)
	if err != nil {
		return err
	}
	entries = slices.DeleteFunc(entries, func(e coord.Entry) bool { return parseRevision(e).Number == 0 })
	old := entries[:max(len(entries)-MaxHistory, 0)]
	for batch := range slices.Chunk(old, coord.MaxTransactions) {
		all := make([]coord.Transaction, 0, len(batch))
		for _, e := range batch {
			all = append(all, coord.Transaction{
				If:   []coord.Condition{{Key: e.Key, Created: e.Created}},
				Then: []coord.Change{{Key: e.Key, Delete: true}},
			})
		}
		if _, err := b.Commit(ctx, all...); err != nil {
			return err
		}
	}
	return nil
}

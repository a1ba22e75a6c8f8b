// Package etcd implements the shared store of a fleet (coord.Backend) with etcd, version 3.4 or newer.
//
// Etcd must compact old revisions itself, for example with --auto-compaction-mode=periodic and
// --auto-compaction-retention=5m, since the engines do not.
package etcd

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/namespace"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/sonde-probe/sonde/fleet/coord"
)

// Config configures a Backend.
type Config struct {
	Endpoints []string    // of all members of the cluster, such as "https://10.0.0.1:2379"; at least one
	Prefix    string      // of all keys; the engines of a fleet use the same one; ends with a slash; default DefaultPrefix
	TLS       *tls.Config // default: the system's authorities for https, and no client certificate
	Username  string      // default: no authentication
	Password  string

	// RenewTLS returns the current TLS configuration for each connection, such as one with a renewed certificate. If it
	// fails, that of the previous connection is used. Default: TLS does not change.
	RenewTLS func() (*tls.Config, error)
}

// DefaultPrefix is the default of Config.Prefix.
const DefaultPrefix = "/sonde/"

// dialTimeout bounds the time to establish one connection.
const dialTimeout = 2 * time.Second

// reconnect is the back-off between attempts to connect to a member. With gRPC's defaults an engine would notice up to
// two minutes late that etcd is available again.
var reconnect = backoff.Config{BaseDelay: 200 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second}

// Backend is a coord.Backend in etcd. Its methods are safe for concurrent use by multiple goroutines.
type Backend struct {
	config  Config
	opening chan struct{} // capacity 1: holds an element while a goroutine opens the client
	client  atomic.Pointer[clientv3.Client]
	renewed *renewed // the credentials with Config.RenewTLS; otherwise nil
}

// Open returns a Backend. It does not wait for a connection unless there is a Username: then it waits for at most a few
// seconds. It returns an error if etcd rejects the password, but not if etcd is unreachable: later requests log in then.
func Open(c Config) (*Backend, error) {
	if len(c.Endpoints) == 0 {
		return nil, errors.New("endpoints are missing: write the addresses of all members of the etcd cluster")
	}
	if c.Prefix == "" {
		c.Prefix = DefaultPrefix
	}
	if !strings.HasSuffix(c.Prefix, "/") {
		return nil, fmt.Errorf("prefix is %q; it must end with a slash", c.Prefix)
	}
	b := &Backend{config: c, opening: make(chan struct{}, 1)}
	if c.TLS != nil && c.RenewTLS != nil {
		b.renewed = newRenewed(c.TLS, c.RenewTLS)
	}
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
	defer cancel()
	if _, err := b.open(ctx); err != nil && !isUnreachable(err) {
		return nil, err
	}
	return b, nil
}

// open returns the client. With a Username the client exists once etcd has issued a token; until then each request tries
// to get one.
func (b *Backend) open(ctx context.Context) (*clientv3.Client, error) {
	if client := b.client.Load(); client != nil {
		return client, nil
	}
	select {
	case b.opening <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-b.opening }()
	if client := b.client.Load(); client != nil {
		return client, nil
	}
	c := b.config
	dial := []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{Backoff: reconnect, MinConnectTimeout: dialTimeout})}
	if b.renewed != nil {
		dial = append(dial, grpc.WithTransportCredentials(b.renewed))
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints: c.Endpoints, TLS: c.TLS, Username: c.Username, Password: c.Password, DialOptions: dial,
		DialTimeout: dialTimeout, DialKeepAliveTime: dialTimeout, DialKeepAliveTimeout: dialTimeout,
		Logger: zap.NewNop(), // errors are logged by the Coordinator
	})
	if err != nil {
		return nil, fmt.Errorf("etcd: %w", err)
	}
	client.KV = namespace.NewKV(client.KV, c.Prefix)
	client.Watcher = namespace.NewWatcher(client.Watcher, c.Prefix)
	b.client.Store(client)
	return client, nil
}

// isUnreachable reports whether an error may be temporary, until etcd is reachable again or has a leader.
func isUnreachable(err error) bool {
	code := status.Code(err)
	if known := (rpctypes.EtcdError{}); errors.As(err, &known) {
		code = known.Code()
	}
	return errors.Is(err, context.DeadlineExceeded) || code == codes.DeadlineExceeded || code == codes.Unavailable
}

// unreachableError is a coord.ErrUnreachable with the text of a client error, which does not include why the connection
// failed.
type unreachableError struct{ err, handshake error }

// Error implements error. It strips the prefix and the code of gRPC from the text.
func (e unreachableError) Error() string {
	text := e.err.Error()
	if withStatus := (interface{ GRPCStatus() *status.Status })(nil); errors.As(e.err, &withStatus) {
		text = withStatus.GRPCStatus().Message()
	}
	if e.handshake != nil {
		return fmt.Sprintf("%s; the latest TLS handshake failed: %v", text, e.handshake)
	}
	return text
}

func (e unreachableError) Unwrap() []error { return []error{coord.ErrUnreachable, e.err} }

// Close closes all connections. It must be called once, after the last request.
func (b *Backend) Close() error {
	if client := b.client.Load(); client != nil {
		return client.Close()
	}
	return nil
}

// request makes a request, and translates its error for package coord.
func request[T any](ctx context.Context, b *Backend, call func(*clientv3.Client) (T, error)) (response T, err error) {
	client, err := b.open(ctx)
	if err == nil {
		response, err = call(client)
	}
	return response, b.known(err)
}

// Grant implements coord.Backend. The ttl is rounded up to seconds.
func (b *Backend) Grant(ctx context.Context, ttl time.Duration) (coord.Lease, error) {
	granted, err := request(ctx, b, func(c *clientv3.Client) (*clientv3.LeaseGrantResponse, error) {
		return c.Grant(ctx, int64((ttl+time.Second-1)/time.Second))
	})
	if err != nil {
		return 0, err
	}
	return coord.Lease(granted.ID), nil
}

// KeepAlive implements coord.Backend.
func (b *Backend) KeepAlive(ctx context.Context, l coord.Lease) error {
	_, err := request(ctx, b, func(c *clientv3.Client) (*clientv3.LeaseKeepAliveResponse, error) {
		return c.KeepAliveOnce(ctx, clientv3.LeaseID(l))
	})
	return err
}

// Revoke implements coord.Backend.
func (b *Backend) Revoke(ctx context.Context, l coord.Lease) error {
	_, err := request(ctx, b, func(c *clientv3.Client) (*clientv3.LeaseRevokeResponse, error) {
		return c.Revoke(ctx, clientv3.LeaseID(l))
	})
	if errors.Is(err, coord.ErrLeaseEnded) {
		return nil
	}
	return err
}

// Commit implements coord.Backend. It nests the transactions in one transaction of etcd.
func (b *Backend) Commit(ctx context.Context, all ...coord.Transaction) ([]bool, error) {
	if err := coord.CheckCommit(all); err != nil {
		return nil, err
	}
	nested := make([]clientv3.Op, 0, len(all))
	for _, t := range all {
		nested = append(nested, transaction(t))
	}
	response, err := b.do(ctx, nested)
	if err != nil {
		return nil, err
	}
	made := make([]bool, len(all))
	for i, r := range response.Responses {
		made[i] = r.GetResponseTxn().Succeeded
	}
	return made, nil
}

// do executes operations in one request.
func (b *Backend) do(ctx context.Context, all []clientv3.Op) (*clientv3.TxnResponse, error) {
	return request(ctx, b, func(c *clientv3.Client) (*clientv3.TxnResponse, error) { return c.Txn(ctx).Then(all...).Commit() })
}

// get reads keys.
func (b *Backend) get(ctx context.Context, key string, which ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	return request(ctx, b, func(c *clientv3.Client) (*clientv3.GetResponse, error) { return c.Get(ctx, key, which...) })
}

// transaction converts t to an etcd operation.
func transaction(t coord.Transaction) clientv3.Op {
	conditions := make([]clientv3.Cmp, 0, len(t.If))
	for _, c := range t.If {
		compared := clientv3.Compare(clientv3.CreateRevision(c.Key), "=", int64(c.Created))
		if c.Modified != 0 {
			compared = clientv3.Compare(clientv3.ModRevision(c.Key), "=", int64(c.Modified))
		}
		conditions = append(conditions, compared)
	}
	changes := make([]clientv3.Op, 0, len(t.Then))
	for _, c := range t.Then {
		if c.Delete {
			changes = append(changes, clientv3.OpDelete(c.Key))
		} else {
			changes = append(changes, clientv3.OpPut(c.Key, string(c.Value), clientv3.WithLease(clientv3.LeaseID(c.Lease))))
		}
	}
	return clientv3.OpTxn(conditions, changes, nil)
}

// Get implements coord.Backend.
func (b *Backend) Get(ctx context.Context, key string) (coord.Entry, error) {
	response, err := b.get(ctx, key)
	if err != nil || len(response.Kvs) == 0 {
		return coord.Entry{}, err
	}
	return entry(response.Kvs[0]), nil
}

// Range implements coord.Backend.
func (b *Backend) Range(ctx context.Context, prefix string) ([]coord.Entry, coord.Revision, error) {
	var found []coord.Entry
	key, which, at := prefix, clientv3.WithPrefix(), int64(0)
	for {
		response, err := b.get(ctx, key, which, clientv3.WithLimit(maxPage), clientv3.WithRev(at))
		if err != nil {
			return nil, 0, err
		}
		found = append(found, entries(response.Kvs)...)
		at = cmp.Or(at, response.Header.Revision)
		if !response.More {
			return found, coord.Revision(at), nil
		}
		key, which = found[len(found)-1].Key+"\x00", clientv3.WithRange(clientv3.GetPrefixRangeEnd(prefix))
	}
}

// maxPage bounds the entries of one request: those of large fleets would use a lot of etcd's memory.
const maxPage = 2000

// RangeAll implements coord.Backend.
func (b *Backend) RangeAll(ctx context.Context, prefixes ...string) ([][]coord.Entry, error) {
	if len(prefixes) > coord.MaxTransactions {
		return nil, fmt.Errorf("%d prefixes in one request, at most %d are allowed", len(prefixes), coord.MaxTransactions)
	}
	gets := make([]clientv3.Op, 0, len(prefixes))
	for _, prefix := range prefixes {
		gets = append(gets, clientv3.OpGet(prefix, clientv3.WithPrefix()))
	}
	response, err := b.do(ctx, gets)
	if err != nil {
		return nil, err
	}
	all := make([][]coord.Entry, len(prefixes))
	for i, r := range response.Responses {
		all[i] = entries(r.GetResponseRange().Kvs)
	}
	return all, nil
}

func entries(kvs []*mvccpb.KeyValue) []coord.Entry {
	found := make([]coord.Entry, 0, len(kvs))
	for _, kv := range kvs {
		found = append(found, entry(kv))
	}
	return found
}

func entry(kv *mvccpb.KeyValue) coord.Entry {
	return coord.Entry{
		Key: string(kv.Key), Value: kv.Value,
		Created: coord.Revision(kv.CreateRevision), Modified: coord.Revision(kv.ModRevision),
	}
}

// Watch implements coord.Backend. It ends if the member that serves it has no leader, and when the connections to all
// members are lost: etcd may be restored from a snapshot meanwhile, and the client, which resumes at the last revision
// that it has seen, would not notice.
func (b *Backend) Watch(ctx context.Context, prefix string, after coord.Revision) iter.Seq2[[]coord.Event, error] {
	return func(yield func([]coord.Event, error) bool) {
		client, err := b.open(ctx)
		if err != nil {
			yield(nil, b.known(err))
			return
		}
		var waiting sync.WaitGroup
		defer waiting.Wait()
		ctx, stop := context.WithCancelCause(clientv3.WithRequireLeader(ctx))
		defer stop(nil)
		waiting.Go(func() {
			if awaitLoss(ctx, client.ActiveConnection()) {
				stop(errLost)
			}
		})
		for response := range client.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(int64(after)+1), clientv3.WithFragment()) {
			if err := response.Err(); err != nil {
				yield(nil, b.known(err))
				return
			}
			events := make([]coord.Event, 0, len(response.Events))
			for _, e := range response.Events {
				events = append(events, coord.Event{Entry: entry(e.Kv), Deleted: e.Type == clientv3.EventTypeDelete})
			}
			if len(events) > 0 && !yield(events, nil) {
				return
			}
		}
		if err = context.Cause(ctx); err == nil {
			err = errors.New("etcd has ended the watch")
		}
		yield(nil, err)
	}
}

// errLost is the error of a watch that ended since all connections were lost: see Backend.Watch.
var errLost = unreachableError{err: errors.New("the connection to etcd was lost")}

// awaitLoss waits until a client has been connected and then loses its connection. It returns false if ctx is done
// first.
func awaitLoss(ctx context.Context, c *grpc.ClientConn) bool {
	for s := c.GetState(); s != connectivity.Ready; s = c.GetState() {
		if !c.WaitForStateChange(ctx, s) {
			return false
		}
	}
	return c.WaitForStateChange(ctx, connectivity.Ready)
}

// known translates an error for package coord.
func (b *Backend) known(err error) error {
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		return coord.ErrLeaseEnded
	case errors.Is(err, rpctypes.ErrCompacted):
		return coord.ErrCompacted
	case isUnreachable(err):
		if b.renewed == nil {
			return unreachableError{err: err}
		}
		b.renewed.lastMu.Lock()
		defer b.renewed.lastMu.Unlock()
		return unreachableError{err, b.renewed.failed}
	}
	return err
}

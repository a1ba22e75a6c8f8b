package xds

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	cachev3 "github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	resourcev3 "github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	serverv3 "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/sonde-probe/sonde/gateway"
	httpgateway "github.com/sonde-probe/sonde/gateway/http"
	"github.com/sonde-probe/sonde/group"
)

// Bounds on what a stream may ask for.
const (
	maxTypes = 32                   // of resources
	maxNames = httpgateway.MaxNames // of resources, of all types together

	maxNamesOfAll = 1_000_000 // of resources, of all streams
)

// discovery has the resources that clients get.
type discovery struct {
	session        *gateway.Session
	degradedStatus bool
	endpoints      *cachev3.LinearCache
	all            *cachev3.MuxCache

	streamsMu sync.Mutex                              // guards streams and names
	streams   map[streamID]map[string]map[string]bool // the names that they ask for, by type
	names     int                                     // that all streams ask for
}

// streamID is the ID of a stream, which is unique among those of its protocol.
type streamID struct {
	delta bool
	id    int64
}

// newDiscovery returns the resources of the groups of a session. There are no endpoints of a
// group until something is known about it.
func newDiscovery(s *gateway.Session, c Config) (*discovery, error) {
	life := strconv.FormatInt(time.Now().UnixNano(), 36) + "." // versions of another life are no numbers of this one
	clusters, listeners := map[string]types.Resource{}, map[string]types.Resource{}
	for _, g := range s.Groups {
		name := g.View().Group
		listener, err := newListener(name, c.Retries)
		if err != nil {
			return nil, err
		}
		clusters[name], listeners[name] = newCluster(name), listener
	}
	cache := func(of string, initial map[string]types.Resource) *cachev3.LinearCache {
		return cachev3.NewLinearCache(of, cachev3.WithVersionPrefix(life), cachev3.WithInitialResources(initial))
	}
	d := &discovery{
		session: s, degradedStatus: c.DegradedStatus, endpoints: cache(resourcev3.EndpointType, nil), streams: map[streamID]map[string]map[string]bool{},
	}
	d.all = &cachev3.MuxCache{
		Classify:      func(r *cachev3.Request) string { return classify(r.GetTypeUrl()) },
		ClassifyDelta: func(r *cachev3.DeltaRequest) string { return classify(r.GetTypeUrl()) },
		Caches: map[string]cachev3.Cache{
			resourcev3.EndpointType: onlyKnown{onlyNew{d.endpoints, life}},
			resourcev3.ClusterType:  onlyNew{cache(resourcev3.ClusterType, clusters), life},
			resourcev3.ListenerType: onlyNew{cache(resourcev3.ListenerType, listeners), life},
			"":                      none{},
		},
	}
	return d, nil
}

func classify(typeURL string) string {
	switch typeURL {
	case resourcev3.EndpointType, resourcev3.ClusterType, resourcev3.ListenerType:
		return typeURL
	}
	return ""
}

// follow keeps the endpoints up to date until ctx is done.
func (d *discovery) follow(ctx context.Context) {
	seen := make([]*group.View, len(d.session.Groups))
	shown := make([]*endpointv3.ClusterLoadAssignment, len(d.session.Groups))
	for ctx.Err() == nil {
		before := d.session.Views()
		for i, v := range d.session.Kept() {
			if v == nil || v == seen[i] {
				continue
			}
			seen[i] = v
			assignment, problem := newAssignment(v, d.degradedStatus)
			if !proto.Equal(assignment, shown[i]) {
				shown[i] = assignment
				problem = errors.Join(problem, d.endpoints.UpdateResource(v.Group, assignment))
			}
			d.session.Report(map[string]error{gateway.SourceGroup(v.Group): problem})
		}
		group.AwaitReplaced(ctx, before)
	}
}

// onlyNew is a cache that sends a stream each version of a resource once. A client that rejects the
// first one has no version of this life, and LinearCache would answer it at once with the same, again
// and again.
type onlyNew struct {
	*cachev3.LinearCache
	life string // prefix of versions
}

// CreateWatch implements cachev3.ConfigWatcher.
func (c onlyNew) CreateWatch(r *cachev3.Request, sub cachev3.Subscription, to chan cachev3.Response) (func(), error) {
	if r.GetResponseNonce() != "" {
		r = c.ofThisLife(r)
	}
	return c.LinearCache.CreateWatch(r, sub, to)
}

// ofThisLife returns a request with a version of this life. The cache answers others at once, whatever
// the stream has been sent.
func (c onlyNew) ofThisLife(r *cachev3.Request) *cachev3.Request {
	if strings.HasPrefix(r.GetVersionInfo(), c.life) {
		return r
	}
	r = proto.CloneOf(r)
	r.VersionInfo = c.life + "0"
	return r
}

// onlyKnown is a cache of endpoints that says nothing of a group before something is known about
// it: a client that has its endpoints from another life of this program keeps them until there are
// some, and no answer removes them.
type onlyKnown struct{ onlyNew }

// CreateWatch implements cachev3.ConfigWatcher.
func (c onlyKnown) CreateWatch(r *cachev3.Request, sub cachev3.Subscription, to chan cachev3.Response) (func(), error) {
	return c.LinearCache.CreateWatch(c.ofThisLife(r), sub, to)
}

// CreateDeltaWatch implements cachev3.ConfigWatcher. The cache removes what a client has and it has
// not, so it does not see such names: it has never had them, as it loses none. A client that asks for
// all groups has an answer at once, also an empty one, which removes nothing.
func (c onlyKnown) CreateDeltaWatch(r *cachev3.DeltaRequest, sub cachev3.Subscription, to chan cachev3.DeltaResponse) (func(), error) {
	known, returned := c.GetResources(), maps.Clone(sub.ReturnedResources())
	maps.DeleteFunc(returned, func(name, _ string) bool { return known[name] == nil })
	return c.LinearCache.CreateDeltaWatch(r, subscription{sub, returned}, to)
}

// subscription is what a client asks for, and has of that by what the server says.
type subscription struct {
	cachev3.Subscription
	returned map[string]string // versions by name
}

// ReturnedResources implements cachev3.Subscription.
func (s subscription) ReturnedResources() map[string]string { return s.returned }

// none is a cache of types of which there are no resources, such as secrets. It does not answer,
// so that the stream goes on.
type none struct{}

func (none) CreateWatch(*cachev3.Request, cachev3.Subscription, chan cachev3.Response) (func(), error) {
	return func() {}, nil
}

func (none) CreateDeltaWatch(*cachev3.DeltaRequest, cachev3.Subscription, chan cachev3.DeltaResponse) (func(), error) {
	return func() {}, nil
}

func (none) Fetch(context.Context, *cachev3.Request) (cachev3.Response, error) {
	return nil, status.Error(codes.NotFound, "there are no resources of this type")
}

// callbacks returns what keeps streams within their bounds, and reports what clients reject.
func (d *discovery) callbacks() serverv3.Callbacks {
	return serverv3.CallbackFuncs{
		StreamRequestFunc: func(id int64, r *discoveryv3.DiscoveryRequest) error {
			return d.note(streamID{false, id}, r, r.GetResponseNonce(), func(names map[string]bool) {
				clear(names)
				add(names, r.GetResourceNames())
			})
		},
		StreamDeltaRequestFunc: func(id int64, r *discoveryv3.DeltaDiscoveryRequest) error {
			return d.note(streamID{true, id}, r, r.GetResponseNonce(), func(names map[string]bool) {
				add(names, r.GetResourceNamesSubscribe())
				for _, name := range r.GetResourceNamesUnsubscribe() {
					delete(names, name)
				}
			})
		},
		StreamClosedFunc:      func(id int64, _ *corev3.Node) { d.forget(streamID{false, id}) },
		DeltaStreamClosedFunc: func(id int64, _ *corev3.Node) { d.forget(streamID{true, id}) },
	}
}

// request is what requests of both forms have.
type request interface {
	GetNode() *corev3.Node
	GetTypeUrl() string
	GetErrorDetail() *rpcstatus.Status
}

// note changes the names that a stream asks for, as bound does, and reports that the client has
// rejected the resources of a type, or has accepted some after that. Nonce is that of what the
// request answers, and empty in the first one.
func (d *discovery) note(id streamID, r request, nonce string, change func(names map[string]bool)) error {
	if err := d.bound(id, r.GetTypeUrl(), change); err != nil {
		return err
	}
	source := id.source(r.GetTypeUrl())
	switch problem := r.GetErrorDetail().GetMessage(); {
	case problem != "":
		d.session.Failed(source, fmt.Errorf("client %.80q rejects resources of the type %.120q: %.500q", r.GetNode().GetId(), r.GetTypeUrl(), problem))
	case nonce != "":
		d.session.Cured(source)
	}
	return nil
}

// source returns the source of rejections of the resources of a type.
func (id streamID) source(typeURL string) string {
	return fmt.Sprintf("stream %d (delta: %v), type %.120q", id.id, id.delta, typeURL)
}

func add(names map[string]bool, more []string) {
	for _, name := range more {
		names[name] = true
	}
}

// bound changes the names of a type that a stream asks for, and returns an error, which ends the
// stream, if it asks for too much.
func (d *discovery) bound(id streamID, typeURL string, change func(names map[string]bool)) error {
	d.streamsMu.Lock()
	defer d.streamsMu.Unlock()
	byType := d.streams[id]
	if byType == nil {
		byType = map[string]map[string]bool{}
		d.streams[id] = byType
	}
	if byType[typeURL] == nil {
		byType[typeURL] = map[string]bool{}
	}
	before := len(byType[typeURL])
	change(byType[typeURL])
	d.names += len(byType[typeURL]) - before
	switch {
	case len(byType) > maxTypes || namesOf(byType) > maxNames:
		d.session.Refused()
		return status.Errorf(codes.ResourceExhausted, "a stream may request at most %d names of %d types", maxNames, maxTypes)
	case d.names > maxNamesOfAll:
		d.session.Refused()
		return status.Errorf(codes.ResourceExhausted, "all streams together may request at most %d names", maxNamesOfAll)
	}
	return nil
}

func namesOf(byType map[string]map[string]bool) (sum int) {
	for _, names := range byType {
		sum += len(names)
	}
	return sum
}

func (d *discovery) forget(id streamID) {
	d.streamsMu.Lock()
	types := slices.Collect(maps.Keys(d.streams[id]))
	d.names -= namesOf(d.streams[id])
	delete(d.streams, id)
	d.streamsMu.Unlock()
	for _, typeURL := range types {
		d.session.Cured(id.source(typeURL))
	}
}

package traffic

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/weirmesh/weir/api/metrics"
	"github.com/weirmesh/weir/internal/screen"
	"github.com/weirmesh/weir/internal/topology"
)

// ErrGone is what an error about a resource that does not exist is (errors.Is).
var ErrGone = errors.New("the resource does not exist")

// API is where Traffic Metrics are read. It is asked by several at a time.
type API interface {
	// List returns what was measured at the resources of a kind.
	List(ctx context.Context, of metrics.Resource) (metrics.TrafficMetricsList, error)
	// Edges returns the edges of a resource, with the other sides as resources of the same kind where they can be. It fails
	// with ErrGone if the resource does not exist.
	Edges(ctx context.Context, of metrics.Resource, namespace, name string) (metrics.TrafficMetricsList, error)
}

// maxEdgeQueries is how many resources are asked for their edges at a time.
const maxEdgeQueries = 8

// Topology asks for all resources of a kind, and then for the edges of each (draft, "Topologies"). It leaves out those
// that are deleted meanwhile, and ends with the first other error.
func Topology(ctx context.Context, api API, of metrics.Resource) (topology.Graph, error) {
	l, err := api.List(ctx, of)
	if err != nil {
		return topology.Graph{}, err
	}
	found := make([][]Row, len(l.Items))
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	places := make(chan struct{}, maxEdgeQueries)
	for i := range l.Items {
		places <- struct{}{}
		if ctx.Err() != nil {
			break
		}
		all.Go(func() {
			defer func() { <-places }()
			r := &l.Items[i].Resource
			e, err := api.Edges(ctx, of, r.Namespace, r.Name)
			switch {
			case err == nil:
				found[i] = Rows(&e)
			case !errors.Is(err, ErrGone):
				cancel(err)
			}
		})
	}
	all.Wait()
	if err := context.Cause(ctx); err != nil {
		return topology.Graph{}, err
	}
	rows := slices.Concat(found...)
	return Graph(rows, Namespaces(rows) > 1), nil
}

// Overview is what the commands top and topology print for a kind, below their command lines.
func Overview(ctx context.Context, api API, kind string, s screen.Screen) (string, error) {
	of, ok := Kind(kind)
	if !ok {
		return "", errors.New("there is no kind " + kind)
	}
	l, err := api.List(ctx, of)
	if err != nil {
		return "", err
	}
	g, err := Topology(ctx, api, of)
	if err != nil {
		return "", err
	}
	rows := Rows(&l)
	Sort(rows, ByName)
	return "$ weir traffic top " + kind + "\n" + Top(rows, Options{}, s) +
		"$ weir traffic topology " + kind + "\n" + topology.Text(g, topology.Options{Width: s.Width}), nil
}

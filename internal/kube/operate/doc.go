// Package operate is Rollouts of a cluster for the people who operate them: it reads them with their pods and revisions,
// and carries out what is asked of them. It asks the API server with the rights of whoever runs it, and neither needs nor
// asks Weir's controller; that one (internal/kube/release) finds the changes as it finds those of kubectl.
package operate

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weirmesh/weir/api/rollouts"
	"github.com/weirmesh/weir/internal/kube"
	"github.com/weirmesh/weir/internal/kube/edit"
	"github.com/weirmesh/weir/internal/kube/release"
	"github.com/weirmesh/weir/internal/visible"
)

const (
	// patience bounds one request, unless the user's flag does.
	patience = 15 * time.Second
	// page is how many objects one request of a list returns, most how many a list may have.
	page, most = 500, 20000
)

var rolloutKind = edit.GVK(rollouts.Group, rollouts.Versions[0], "Rollout")

// errNone means that the API server has no such kind.
var errNone = fmt.Errorf("the cluster has no Rollouts (%s): install Weir's chart there, with rollouts.enabled", rolloutKind.GroupVersion())

// ErrNotFound means that there is no such Rollout.
var ErrNotFound = errors.New("there is no such Rollout")

// Cluster is one that somebody asks. Several goroutines may use it at the same time.
type Cluster struct {
	client   *kube.Client
	patience time.Duration
	follows  client.WithWatch
	http     *http.Client
}

// New makes a Cluster of a client, which outlives it.
func New(c *kube.Client) (*Cluster, error) {
	out := &Cluster{client: c, patience: patience}
	config := rest.CopyConfig(c.Config)
	if config.Timeout > 0 {
		out.patience, config.Timeout = config.Timeout, 0 // a watch lasts
	}
	var err error
	if out.http, err = rest.HTTPClientFor(config); err != nil {
		return nil, err
	}
	out.follows, err = client.NewWithWatch(config, client.Options{HTTPClient: out.http, Scheme: c.Scheme(), Mapper: c.RESTMapper()})
	return out, err
}

// Close closes connections that are not in use.
func (c *Cluster) Close() { c.http.CloseIdleConnections() }

// away says why Weir's controller carries no Rollouts out here; empty if it may.
func (c *Cluster) away(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, c.patience)
	defer cancel()
	why, err := release.FindObstacle(ctx, c.client)
	return why.String(), c.plain(err)
}

// plain is an error for the user: what the API server says, or that it does not answer.
func (c *Cluster) plain(err error) error {
	if err == nil {
		return nil
	}
	if status := apierrors.APIStatus(nil); errors.As(err, &status) && status.Status().Message != "" {
		return fault{visible.Text(status.Status().Message), err}
	}
	if unreached := (*url.Error)(nil); errors.As(err, &unreached) {
		return fmt.Errorf("the API server %s does not answer: %w", c.client.Config.Host, unreached.Err)
	}
	return err
}

// fault is an error in words for the user.
type fault struct {
	text string
	error
}

func (f fault) Error() string { return f.text }
func (f fault) Unwrap() error { return f.error }

// list reads a list in pages.
func (c *Cluster) list(ctx context.Context, into client.ObjectList, each func() int, o ...client.ListOption) error {
	next, n := "", 0
	for {
		ask, cancel := context.WithTimeout(ctx, c.patience)
		err := c.client.List(ask, into, append(o, client.Limit(page), client.Continue(next))...)
		cancel()
		if err != nil {
			return c.plain(err)
		}
		n += each()
		if next = into.GetContinue(); next == "" {
			return nil
		}
		if n >= most {
			return fmt.Errorf("there are more than %d objects to read", most)
		}
	}
}

// read reads one object.
func (c *Cluster) read(ctx context.Context, namespace, name string, into client.Object) error {
	ctx, cancel := context.WithTimeout(ctx, c.patience)
	defer cancel()
	return c.plain(c.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, into))
}

package fed

import (
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/weirmesh/weir/internal/feed"
	"github.com/weirmesh/weir/internal/identity/spiffe"
	"github.com/weirmesh/weir/internal/identity/workload"
	"github.com/weirmesh/weir/internal/model"
)

// identities are those that a controller signs for a data plane. One of another trust domain or namespace is not used.
type identities struct {
	source      *workload.Source
	trustDomain string
	namespace   string
	whose       string // namespace it is
	log         *slog.Logger

	ends atomic.Pointer[time.Time] // of the newest one that is used
	tell func()
}

func newIdentities(trustDomain, namespace, whose string, log *slog.Logger) *identities {
	i := &identities{trustDomain: trustDomain, namespace: namespace, whose: whose, log: log, tell: func() {}}
	i.source = &workload.Source{Logger: log, Changed: i.changed}
	return i
}

// signedBy has them signed by the controller that a client follows, which hears when they end.
func (i *identities) signedBy(client *feed.Client) {
	i.source.Sign, i.tell = client.Sign, client.Tell
	client.Ends = func() time.Time {
		if at := i.ends.Load(); at != nil {
			return *at
		}
		return time.Time{}
	}
}

func (i *identities) changed(id *spiffe.Identity) {
	if err := i.owns(id); err != nil {
		i.log.Error("the identity is not used", "error", err)
		return
	}
	i.ends.Store(&id.Certificate.Leaf.NotAfter)
	i.tell()
}

// current is the one that is presented now; nil if there is none that may be used.
func (i *identities) current() *spiffe.Identity {
	if id := i.source.Identity(); id != nil && i.owns(id) == nil {
		return id
	}
	return nil
}

// named is dataplane.Options.Identities.
func (i *identities) named(name string) *spiffe.Identity {
	if name == model.WorkloadIdentity {
		return i.current()
	}
	return nil
}

// owns fails for an identity that is not one of the data plane.
func (i *identities) owns(id *spiffe.Identity) error {
	if domain := id.ID.TrustDomain(); domain != i.trustDomain {
		return fmt.Errorf("%s is of the trust domain %q, not of %q (--trust-domain)", id.ID, domain, i.trustDomain)
	}
	if namespace, _, ok := id.ID.ServiceAccount(); !ok || namespace != i.namespace {
		return fmt.Errorf("%s is of no ServiceAccount of namespace %q, which is the %s's", id.ID, i.namespace, i.whose)
	}
	return nil
}

package release

import (
	"context"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weirmesh/weir/internal/rollout/workload"
)

const (
	// judgedFor is how long what a definition says of a kind is taken for what it still says.
	judgedFor = 30 * time.Second
	// definitionTimeout is for reading one.
	definitionTimeout = 5 * time.Second
)

// Definitions judge custom kinds of workloads by their definitions. Several goroutines may use them at the same time.
type Definitions struct {
	// Client reads definitions.
	Client client.Reader

	mu     sync.Mutex
	judged map[judgedKind]judgement
}

type judgedKind struct {
	*workload.Kind
	version string
}

type judgement struct {
	why string
	at  time.Time
}

// Unfit says why no object of a kind can be released as a version has it; empty if they can.
func (d *Definitions) Unfit(ctx context.Context, kind *workload.Kind, version string) (why string, err error) {
	name := kind.Definition()
	if name == "" {
		return "", nil
	}
	key, now := judgedKind{kind, version}, time.Now()
	d.mu.Lock()
	j, known := d.judged[key]
	d.mu.Unlock()
	if known && now.Sub(j.at) < judgedFor {
		return j.why, nil
	}
	ctx, cancel := context.WithTimeout(ctx, definitionTimeout)
	defer cancel()
	crd := &apiextensionsv1.CustomResourceDefinition{}
	switch err := d.Client.Get(ctx, client.ObjectKey{Name: name}, crd); {
	case apierrors.IsNotFound(err):
		crd = nil
	case err != nil:
		return "", &failure{verb: "read", object: "the definition " + name, err: err}
	}
	j = judgement{kind.Unfitting(crd, version), now}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.judged == nil || len(d.judged) >= maxJudged {
		d.judged = map[judgedKind]judgement{}
	}
	d.judged[key] = j
	return j.why, nil
}

// maxJudged bounds what is remembered: Rollouts may name any version.
const maxJudged = 256

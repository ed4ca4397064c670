package inspect

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weirmesh/weir/internal/kube"
	"github.com/weirmesh/weir/internal/kube/access"
	"github.com/weirmesh/weir/internal/rollout/provider"
)

// askers is how many questions are asked at a time.
const askers = 8

// question is whether the controller may do something in a namespace, or in all.
type question struct {
	access.Verb
	namespace string
}

// access finds out which of its needed rights the controller's ServiceAccount lacks: by impersonating it if the user
// may, else by asking about it.
func (r *reader) access(ctx context.Context) error {
	c := r.out.Controller
	var questions []question
	asked := map[question]bool{} // some rights are needed for two reasons
	add := func(namespace string, verbs []access.Verb) {
		for _, v := range verbs {
			if q := (question{v, namespace}); !asked[q] {
				asked[q] = true
				questions = append(questions, q)
			}
		}
	}
	var releases []access.Verb
	if c.Rollouts {
		releases = access.Releases(c.Workloads, provider.All())
		add("", slices.Concat(access.Admission(), access.Definitions(c.Workloads)))
	}
	if len(c.Namespaces) == 0 {
		add("", slices.Concat(access.Cluster(r.Kinds), releases))
		add(c.Namespace, access.Own())
	} else {
		add("", access.Shared(r.Kinds, c.Namespaces))
		for _, n := range c.Namespaces {
			add(n, slices.Concat(access.Each(r.Kinds), releases))
		}
		add(c.Namespace, access.Alone())
	}
	if c.TrafficMetrics {
		add("", access.Traffic())
		add(access.AuthenticationNamespace, access.Authentication())
	}
	if c.Sidecars != nil {
		add("", access.Injection())
		add(c.Namespace, access.Mesh(c.Authority))
	}
	ask, done, err := r.asker(ctx, c)
	if err != nil {
		return err
	}
	defer done()
	allowed := make([]bool, len(questions))
	errs := make([]error, len(questions))
	var few errgroup.Group
	few.SetLimit(askers)
	for i := range questions {
		few.Go(func() error {
			allowed[i], errs[i] = ask(ctx, questions[i].attributes())
			return nil
		})
	}
	few.Wait()
	for i, q := range questions {
		switch {
		case r.refused("what the controller may do", errs[i]):
			r.out.Missing = nil
			return nil
		case errs[i] != nil:
			return fmt.Errorf("what the controller may do: %w", errs[i])
		case !allowed[i]:
			r.out.Missing = append(r.out.Missing, Missing{q.Verb, q.namespace})
		}
	}
	return nil
}

func (q question) attributes() *authorizationv1.ResourceAttributes {
	a := &authorizationv1.ResourceAttributes{Namespace: q.namespace, Verb: q.Verb.Verb, Group: q.Group, Resource: q.Resource, Name: q.Name}
	if i := slices.Index([]byte(q.Resource), '/'); i >= 0 {
		a.Resource, a.Subresource = q.Resource[:i], q.Resource[i+1:]
	}
	return a
}

type askFunc func(context.Context, *authorizationv1.ResourceAttributes) (bool, error)

// asker returns how to ask; call done after the last question.
func (r *reader) asker(ctx context.Context, c *Controller) (ask askFunc, done func(), err error) {
	may, err := self(r.client)(ctx, &authorizationv1.ResourceAttributes{
		Verb: "impersonate", Resource: "serviceaccounts", Namespace: c.Namespace, Name: c.ServiceAccount,
	})
	if err != nil && !apierrors.IsForbidden(err) {
		return nil, nil, fmt.Errorf("what you may do: %w", err)
	}
	user := "system:serviceaccount:" + c.Namespace + ":" + c.ServiceAccount
	if may {
		config := rest.CopyConfig(r.client.Config)
		config.Impersonate = rest.ImpersonationConfig{UserName: user}
		as, err := kube.NewClient(config)
		if err != nil {
			return nil, nil, err
		}
		return self(as), as.Close, nil
	}
	return func(ctx context.Context, a *authorizationv1.ResourceAttributes) (bool, error) {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user, Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + c.Namespace, "system:authenticated"}, ResourceAttributes: a,
		}}
		err := r.client.Create(ctx, review)
		return review.Status.Allowed, err
	}, func() {}, nil
}

// self asks about the rights of the client itself.
func self(c client.Client) askFunc {
	return func(ctx context.Context, a *authorizationv1.ResourceAttributes) (bool, error) {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: a}}
		err := c.Create(ctx, review)
		return review.Status.Allowed, err
	}
}
